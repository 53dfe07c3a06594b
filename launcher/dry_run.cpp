#include "launcher/dry_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>
#include <vector>

#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "launcher/local_cluster.hpp"

namespace ddprun::launcher {
namespace {

using Cells = std::vector<std::string>;
constexpr std::string_view kNone = "-";

/// Neighbouring workers of one line: by node (emulated ones are numbered) and local rank.
struct Line {
    int first_node = 0;
    int last_node = 0;
    int first_local = 0;
    int last_local = 0;
    std::size_t program = 0;       ///< index
    agent::WorkerBinding binding;  ///< of each
};

int nodes_of(const Options& options) { return options.local_nodes ? options.nodes.max : 1; }

const agent::WorkerBinding& binding_of(const DryRun& run, int node, int local) {
    return run.options.numa_binding ? run.resources.bindings.at(static_cast<std::size_t>(node * run.slots + local))
                                    : run.resources.bindings.at(0);
}

/// Returns the lines of the table. Those of several nodes are one if each node has a single one.
std::vector<Line> lines_of(const DryRun& run) {
    std::vector<Line> lines;
    for (int node = 0; node < nodes_of(run.options); ++node) {
        const std::size_t begin = lines.size();
        int local = 0;
        for (std::size_t program = 0; program < run.programs.size(); ++program) {
            const int first = local;
            for (; local < first + run.programs[program].slots; ++local) {
                const agent::WorkerBinding& binding = binding_of(run, node, local);
                if (local > first && lines.back().binding == binding)
                    lines.back().last_local = local;
                else
                    lines.push_back({node, node, local, local, program, binding});
            }
        }
        const bool repeats = begin > 0 && lines.size() == begin + 1 &&
                             lines[begin].binding == lines[begin - 1].binding && lines[begin - 1].first_local == 0;
        if (repeats) {
            lines.pop_back();
            lines.back().last_node = node;
        }
    }
    return lines;
}

/// Returns the rank of the first worker of this command; nullopt: it has none yet.
std::optional<int> first_rank(const DryRun& run) {
    const Options& options = run.options;
    if (options.spare) return std::nullopt;
    if (options.local_nodes || options.nodes.max == 1) return 0;
    if (options.node_rank) return *options.node_rank * run.slots;
    return std::nullopt;
}

std::string gpus_text(const DryRun& run, const Line& line) {
    if (run.resources.gpus.empty()) return std::string(kNone);
    std::vector<std::string> names;
    std::set<int> numbers;
    bool ascending = true;
    for (int local = line.first_local; local <= line.last_local; ++local) {
        names.push_back(run.resources.gpus.at(static_cast<std::size_t>(local)));
        const auto number = parse_number<int>(names.back());
        ascending = ascending && number && (numbers.empty() || *number > *numbers.rbegin());
        if (ascending) numbers.insert(*number);
    }
    return ascending ? number_list(numbers) : fmt::format("{}", fmt::join(names, ","));
}

Cells cells_of(const DryRun& run, const Line& line) {
    const auto base = first_rank(run);
    const std::string rank = base ? range_of(*base + line.first_node * run.slots + line.first_local,
                                             *base + line.last_node * run.slots + line.last_local)
                                  : std::string(run.options.spare ? kNone : "?");
    std::string host = run.resources.is_this_machine ? run.host : std::string(kNone);
    if (run.options.local_nodes) {
        host = local_node_name(line.first_node);
        if (line.last_node > line.first_node) host += fmt::format("-{}", local_node_name(line.last_node));
    }
    const std::set<int>& numa_nodes = line.binding.numa_nodes;
    Cells cells{rank,
                range_of(line.first_local, line.last_local),
                host,
                gpus_text(run, line),
                number_list(cpus_in(line.binding.cpus)),
                numa_nodes.empty() ? std::string(kNone) : number_list(numa_nodes),
                run.threads.value_or(std::to_string(line.binding.threads))};
    if (run.programs.size() > 1) cells.push_back(std::to_string(line.program + 1));
    return cells;
}

std::string table_of(const DryRun& run) {
    std::vector<Cells> rows{{"RANK", "LOCAL RANK", "HOST", "GPU", "CPUS", "NUMA NODE", "OMP_NUM_THREADS"}};
    if (run.programs.size() > 1) rows.front().emplace_back("PROGRAM");
    for (const Line& line : lines_of(run)) rows.push_back(cells_of(run, line));
    std::vector<std::size_t> widths(rows.front().size());
    for (const Cells& row : rows)
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    std::string text;
    for (const Cells& row : rows) {
        for (std::size_t i = 0; i + 1 < row.size(); ++i) text += fmt::format("{:<{}}  ", row[i], widths[i]);
        text += row.back() + "\n";
    }
    return text;
}

std::string rendezvous_text(const DryRun& run) {
    const Placement& placement = run.placement;
    using Part = Placement::Part;
    switch (placement.part) {
        case Part::kAlone:
        case Part::kEmulate:
            return fmt::format(
                "a ddprund of this job, on {} of {} ({})",
                placement.endpoint.port == 0 ? "a free port" : fmt::format("port {}", placement.endpoint.port),
                placement.endpoint.host, placement.reason);
        case Part::kHost:
            return fmt::format("ddprund at {}, which starts here unless it runs already ({})",
                               to_string(placement.endpoint), placement.reason);
        case Part::kJoin: return fmt::format("ddprund at {} ({})", to_string(placement.endpoint), placement.reason);
        case Part::kMeet: break;
    }
    if (run.options.rdzv_dir)
        return fmt::format("ddprund on the first node, which publishes its address in {}", *run.options.rdzv_dir);
    if (run.options.allocation && run.options.allocation->hosts.empty())
        return fmt::format("ddprund on the first node of {}, which publishes its address in ~/.ddprun/meeting",
                           run.options.allocation->title);
    std::vector<std::string> servers;
    for (const Endpoint& server : run.options.etcd_servers) servers.push_back(to_string(server));
    return fmt::format("ddprund on the first node, which publishes its address in etcd at {}", list_of(servers));
}

std::string nodes_text(const DryRun& run) {
    const Options& options = run.options;
    const std::string count = options.nodes.min == options.nodes.max
                                  ? counted(options.nodes.max, "node")
                                  : fmt::format("{} to {} nodes", options.nodes.min, options.nodes.max);
    const std::string workers = counted(run.slots, "worker");
    if (options.local_nodes) return fmt::format("{}, emulated on this machine, of {} each", count, workers);
    return options.nodes.max == 1 ? fmt::format("{} of {}", count, workers)
                                  : fmt::format("{}; {} on this one", count, workers);
}

std::string ranks_text(const DryRun& run) {
    if (run.options.spare)
        return "This node is a spare: its workers start, and get ranks, when it replaces a lost node.";
    if (!first_rank(run)) {
        return "Ranks are not known yet: the daemon numbers the nodes in the order in which they join. --node-rank N "
               "asks for a number.";
    }
    return fmt::format("The ranks are these if each node before this one has {}, too.", counted(run.slots, "worker"));
}

}  // namespace

std::string dry_run_text(const DryRun& run) {
    const Options& options = run.options;
    std::string text;
    const auto add = [&text](std::string_view name, std::string_view value) {
        text += fmt::format("{:<12}{}\n", name, value);
    };
    const bool several = run.programs.size() > 1;
    for (std::size_t index = 0; index < run.programs.size(); ++index) {
        const Program& program = options.programs[index];
        const auto& [command, slots] = run.programs[index];
        const Interpreter& python = command.python;
        add(several ? fmt::format("program {}", index + 1) : "program", typed_command(program));
        add("executes",
            python.path.empty() ? command.argv.front() : fmt::format("{} ({})", python.path, python.reason));
        if (several)
            add("role",
                fmt::format("{}, {}, --max-restarts {}", program.role, counted(slots, "worker"), program.max_restarts));
    }
    add("rendezvous", rendezvous_text(run));
    add("nodes", nodes_text(run));
    add("binding",
        options.numa_binding ? to_string(*options.numa_binding) : "none: workers run on the CPUs that ddprun may use");
    add("memory", options.numa_binding
                      ? "of the NUMA node of the CPU that first uses it, of others if that one has none free"
                      : "as ddprun was started");
    text += "\n" + table_of(run);
    if (!options.local_nodes && options.nodes.max > 1) text += "\n" + ranks_text(run) + "\n";
    if (!run.resources.remark.empty()) text += "\n" + run.resources.remark + "\n";
    return text;
}

}  // namespace ddprun::launcher
