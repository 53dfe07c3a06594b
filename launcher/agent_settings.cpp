#include "launcher/agent_settings.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "common/text/number.hpp"
#include "launcher/host/this_host.hpp"
#include "launcher/job_meeting.hpp"
#include "launcher/local_cluster.hpp"
#include "launcher/options/options.hpp"
#include "launcher/output_settings.hpp"
#include "launcher/program.hpp"
#include "launcher/worker_resources.hpp"

namespace ddprun::launcher {
namespace {

/// Returns MASTER_ADDR and MASTER_PORT for the workers of this node, which reaches the daemon at `dialed`.
std::optional<Endpoint> master_of(const Plan& plan, const Endpoint& dialed) {
    std::optional<Endpoint> master = plan.placement.master;
    if (master && plan.placement.part == Placement::Part::kHost)
        master->host = name_for_local_processes(master->host, plan.endpoint_addresses, dialed.host);
    return master;
}

/// --preempt-before, unless it would take more than a tenth of the job's time.
constexpr std::chrono::milliseconds kPreemptBefore{120'000};

/// Returns the node rank that this node prefers; nullopt: it has none, or is a spare.
std::optional<int> rank_in_allocation(const Options& options) {
    if (!options.allocation || options.allocation->node >= options.nodes.max) return std::nullopt;
    return options.allocation->node;
}

/// Returns when the workers get notice of the job's end; nullopt: never.
std::optional<agent::TimeLimit> time_limit(const Options& options) {
    using std::chrono::milliseconds;
    if (!options.job_ends_at || options.preempt_before == milliseconds(0)) return std::nullopt;
    const auto left = std::chrono::duration_cast<milliseconds>(*options.job_ends_at - std::chrono::system_clock::now());
    if (left <= milliseconds(0)) return std::nullopt;  // the variable is an older job's
    const milliseconds before = options.preempt_before.value_or(std::min(kPreemptBefore, left / 10));
    return agent::TimeLimit{Clock::now() + std::max(milliseconds(0), left - before),
                            fmt::format("the job's time limit ends in {} (SLURM_JOB_END_TIME)",
                                        rounded_seconds_text(std::min(before, left)))};
}

}  // namespace

const Interpreter* interpreter_of(const Plan& plan) {
    for (const ResolvedProgram& program : plan.programs)
        if (!program.command.python.path.empty()) return &program.command.python;
    return nullptr;
}

agent::AgentConfig agent_config(Plan plan, const Endpoint& endpoint) {
    const Options& options = plan.options;
    agent::AgentConfig config;
    config.endpoint = endpoint;
    config.master = master_of(plan, endpoint);
    config.local_address = plan.local_address.value_or("");
    config.run_id = options.rdzv_id;
    config.node_name = host_name();
    config.node_rank = options.node_rank ? options.node_rank : rank_in_allocation(options);
    config.node_rank_is_hint = !options.node_rank;
    config.min_nodes = options.nodes.min;
    config.max_nodes = options.nodes.max;
    if (meets_in_home(options)) {
        config.apart_hint =
            "the nodes meet in ~/.ddprun/meeting: if their hosts do not share the home, pass --rdzv-endpoint HOST:PORT "
            "and the same job key (DDPRUN_JOB_KEY) to all";
    }
    config.command_line = started_command(plan.programs);
    for (std::size_t index = 0; index < options.programs.size(); ++index) {
        const Program& program = options.programs[index];
        auto& [command, slots] = plan.programs[index];
        std::string name = program_name(program, command.argv);
        config.programs.push_back(
            {std::move(command.argv), slots, program.max_restarts, program.role, std::move(name)});
    }
    const bool has_arguments = options.programs.size() > 1 || options.programs.front().command.size() > 1;
    if (has_arguments) config.program_line = plan.launch.command;
    config.launch = std::move(plan.launch);
    config.scale_up = options.scale_up;
    config.spare = options.spare;
    if (const Interpreter* const python = interpreter_of(plan))
        config.interpreter = fmt::format("{} ({})", python->path, python->reason);
    const bool elsewhere = plan.placement.part == Placement::Part::kJoin && !options.as_local_node;
    config.connect_timeout = connect_timeout(options, elsewhere);
    config.grace = options.grace;
    config.stall_warning = options.stall_warning;
    config.time_limit = time_limit(options);
    config.device_variables = std::move(plan.device_variables);
    config.bindings = bindings_of_node(options, plan.slots, plan.resources);
    config.handled_signals = options.handled_signals;
    config.output = output_config(options);
    config.log_start = log_start(options);
    config.error_file = std::move(plan.error_file);
    config.report = options.report.value_or("");
    config.events = options.events.value_or("");
    config.events_file = std::move(plan.events);
    config.began_at = plan.began_at;
    config.began = plan.began;
    if (options.as_local_node) {
        const int index = options.as_local_node->index;
        config.node_name = local_node_name(index);
        config.node_rank = index;
        config.emulated = true;
        config.final_report = UniqueFd(options.as_local_node->final_report_fd);
        config.open_lines = UniqueFd(options.as_local_node->open_lines_fd);
        config.console_writer = kLauncherAsWriter + 1 + index;
        for (const UniqueFd* const inherited : {&config.final_report, &config.open_lines}) {
            if (*inherited) ::fcntl(inherited->get(), F_SETFD, FD_CLOEXEC);
        }
    }
    return config;
}

}  // namespace ddprun::launcher
