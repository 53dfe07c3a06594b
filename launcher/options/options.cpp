#include "launcher/options/options.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/text/words.hpp"
#include "launcher/options/command_line.hpp"
#include "launcher/options/from_allocation.hpp"
#include "launcher/options/option_table.hpp"

namespace ddprun::launcher {
namespace {

/// A value for a row, and its origin as the user wrote it: "--nnodes 3:2" or "PET_NNODES=3:2".
struct Source {
    std::string text;
    std::string name;   ///< "--nnodes" or "PET_NNODES"
    std::string shown;  ///< with the text
};

std::optional<Source> given_source(const OptionRow& row, const ProgramLine& line) {
    const auto it = line.given.find(row.name);
    if (it == line.given.end()) return std::nullopt;
    std::string name = fmt::format("--{}", row.name);
    std::string shown = row.is_flag() ? name : fmt::format("{} {}", name, it->second);
    return Source{it->second, std::move(name), std::move(shown)};
}

std::optional<Source> source_of(const OptionRow& row, const ProgramLine& line, const Environment& environment) {
    if (auto given = given_source(row, line)) return given;
    if (row.group.empty()) return std::nullopt;  // an internal option has no variable: it would reach nested jobs
    for (const std::string& name : {variable_name(row), std::string(row.other_variable)}) {
        const auto it = environment.find(name);
        if (it != environment.end()) return Source{it->second, name, fmt::format("{}={}", name, it->second)};
    }
    return std::nullopt;
}

/// Completes options by others that mean the same.
void derive(Options& options) {
    if (!options.node_rank) options.node_rank = options.rdzv_conf.node_rank;
    if (options.standalone && !options.local_nodes && options.nodes.min == 1 && options.nodes.max > 1) {
        options.details.push_back(fmt::format(
            "--standalone: the job has one node, and no other can join, although --nnodes is 1:{}", options.nodes.max));
        options.nodes.max = 1;
    }
}

/// Checks the options that depend on each other.
Result<void> check_together(const Options& options) {
    const auto usage = [](std::string text) { return Error{Errc::kUsage, std::move(text)}; };
    if (options.standalone && options.nodes.max > 1 && !options.local_nodes) {
        return usage(
            fmt::format("--standalone is for one node, but --nnodes needs {}. Leave out --standalone, or add "
                        "--local-nodes to emulate the nodes on this machine.",
                        options.nodes.min));
    }
    if (options.node_rank && *options.node_rank >= options.nodes.max) {
        const bool by_conf = options.rdzv_conf.node_rank == options.node_rank;
        return usage(
            fmt::format("{}{}: {} ({}). Leave it out, and the nodes are numbered in the "
                        "order in which they join; a spare node has no number.",
                        by_conf ? "--rdzv-conf rank=" : "--node-rank ", *options.node_rank,
                        options.nodes.max == 1 ? "the only node is node 0"
                                               : fmt::format("nodes are numbered from 0 to {}", options.nodes.max - 1),
                        options.nodes.min == options.nodes.max
                            ? fmt::format("--nnodes {}", options.nodes.max)
                            : fmt::format("--nnodes {}:{}", options.nodes.min, options.nodes.max)));
    }
    return {};
}

/// Checks that a program is there, and its options. `several`: of those of this command line.
Result<void> check_program(const Program& program, bool several) {
    if (program.module && program.no_python)
        return Error{Errc::kUsage, "--module and --no-python exclude each other: a module is run by Python."};
    if (!program.command.empty() && !program.command.front().empty()) return {};
    return Error{Errc::kUsage,
                 several
                     ? "no program to run. Write ddprun [options] program [arguments] : --nproc-per-node N [options] "
                       "program [arguments]."
                     : "no program to run. Write ddprun [options] program [arguments]; 'ddprun --help' shows "
                       "examples."};
}

/// Returns the role of a further program without --role: its file name without ".py".
Result<std::string> role_by_name(const Program& program) {
    const std::string& name = program.command.front();
    std::string role = name.substr(name.find_last_of('/') + 1);
    if (role.ends_with(".py")) role.resize(role.size() - 3);
    auto parsed = parse_name(role);
    if (parsed) return parsed;
    return with_context("the program's name is its role, unless --role NAME is given", parsed.error());
}

/// Returns "program 2 (server)", by which messages name a further program.
std::string numbered(const ProgramLine& program, std::size_t index) {
    return program.command.empty() ? fmt::format("program {}", index + 1)
                                   : fmt::format("program {} ({})", index + 1, program.command.front());
}

/// Reads a program after ':' and appends it to the options. Variables are for the first program alone.
Result<void> add_further_program(Options& options, const ProgramLine& line) {
    options.programs.emplace_back();
    options.programs.back().command = line.command;
    for (const OptionRow& row : option_table()) {
        const auto source = given_source(row, line);
        if (!source) continue;
        const Result<void> applied = row.apply(options, source->text);
        if (!applied) return with_context(source->shown, applied.error());
    }
    Program& program = options.programs.back();
    if (const Result<void> checked = check_program(program, true); !checked) return checked;
    if (line.given.contains("role")) return {};
    auto role = role_by_name(program);
    if (!role) return role.error();
    program.role = std::move(*role);
    return {};
}

/// Checks that the programs of each role agree on its restarts.
Result<void> check_roles(const std::vector<Program>& programs) {
    for (const Program& program : programs) {
        const auto first = std::ranges::find(programs, program.role, &Program::role);
        if (first->max_restarts == program.max_restarts) continue;
        return Error{Errc::kUsage,
                     fmt::format("--max-restarts: {} and {} for two programs of the role '{}', which share its "
                                 "restarts. Pass the same number to both, or give one of them another --role.",
                                 first->max_restarts, program.max_restarts, program.role)};
    }
    return {};
}

/// Notes a ':' that may be meant to begin a further program, and is an argument of this one.
void note_separator(Options& options, const Program& program) {
    const auto& words = program.command;
    const auto colon =
        std::ranges::find_if(words, [](const auto& word) { return word == ":" || word.starts_with(":-"); });
    if (colon == words.end()) return;
    options.notes.push_back(
        fmt::format("'{}' is passed to {}: another program of the job begins with ': --nproc-per-node N'", *colon,
                    program.command.front()));
}

/// Returns whether --master-addr and --master-port name another endpoint than --rdzv-endpoint does.
bool names_two_endpoints(const Options& options) {
    if (!options.rdzv_endpoint) return false;
    return (options.master_addr && *options.master_addr != options.rdzv_endpoint->host) ||
           (options.master_port && *options.master_port != options.rdzv_endpoint->port);
}

/// Notes the variables with the prefix of options that no option reads.
void note_unread_variables(Options& options, const Environment& environment) {
    std::vector<std::string> known;
    for (const OptionRow& row : option_table())
        if (!row.group.empty()) known.push_back(variable_name(row));
    for (auto it = environment.lower_bound(kVariablePrefix); it != environment.end(); ++it) {
        const std::string& name = it->first;
        if (!name.starts_with(kVariablePrefix)) break;
        if (std::ranges::find(known, name) != known.end()) continue;
        const std::size_t max_edits = std::max<std::size_t>(1, (name.size() - kVariablePrefix.size()) / 4);
        const std::string hint = did_you_mean(name, known, max_edits);
        (hint.empty() ? options.details : options.notes).push_back(fmt::format("no option reads {}.{}", name, hint));
    }
}

bool is_set(const Environment& environment, std::string_view name) {
    const auto it = environment.find(name);
    return it != environment.end() && it->second == "1";
}

/// Refuses what a variable of torchrun asks for, and a script would miss.
Result<void> check_variables(const Environment& environment) {
    if (!is_set(environment, "TORCHELASTIC_ENABLE_FILE_TIMER")) return {};
    return Error{Errc::kUsage,
                 "TORCHELASTIC_ENABLE_FILE_TIMER=1: ddprun has no file timer, and a script that uses "
                 "torch.distributed.elastic.timer would fail without TORCHELASTIC_TIMER_FILE. Unset the variable; "
                 "--stall-warning SECONDS reports ranks that hang."};
}

/// Checks the options of a meeting point, etcd or a directory.
Result<void> check_meeting_point(const Options& options) {
    const EtcdConf& etcd = options.rdzv_conf.etcd;
    const auto usage = [](std::string text) { return Error{Errc::kUsage, std::move(text)}; };
    if (!uses_etcd(options) && !etcd.a_key.empty())
        return usage(fmt::format("--rdzv-conf {}: is for --rdzv-backend etcd only. Pass that, or leave the key out.",
                                 etcd.a_key));
    if (!etcd.tls && !(etcd.ca_file + etcd.cert_file + etcd.key_file).empty())
        return usage("--rdzv-conf cacert, cert and key are for TLS: add protocol=https.");
    if (etcd.cert_file.empty() != etcd.key_file.empty())
        return usage("--rdzv-conf cert and key belong together, a client certificate and its private key: pass both.");
    if (!etcd.password_file.empty() && etcd.user.empty())
        return usage("--rdzv-conf password_file needs the name of its user: add username=NAME.");
    if (uses_etcd(options) && options.rdzv_dir) {
        return usage(
            "--rdzv-dir and --rdzv-backend etcd exclude each other, as both are places where the nodes meet: leave one "
            "out.");
    }
    if ((uses_etcd(options) || options.rdzv_dir) && !options.rdzv_id && !options.local_nodes && !options.standalone) {
        return usage(
            fmt::format("{}: the job needs a name, or it would meet other jobs there. Pass --rdzv-id ID, the same "
                        "on all nodes and different for each job.",
                        uses_etcd(options) ? "--rdzv-backend etcd" : "--rdzv-dir"));
    }
    if (options.store_vouch && (options.insecure || options.local_addr))
        return usage(
            fmt::format("--store-vouch and {} exclude each other: an agent is asked by the address of its "
                        "workers, over TLS. Leave one out.",
                        options.insecure ? "--insecure" : "--local-addr"));
    return {};
}

void add_notes(Options& options, const ProgramLine& line) {
    for (const Program& program : options.programs) {
        if (program.run_path && (program.module || program.no_python)) {
            options.notes.push_back(
                fmt::format("--{} has no effect beside --run-path, which makes the program a script",
                            program.module ? "module" : "no-python"));
        }
        note_separator(options, program);
    }
    const bool meeting_point = uses_etcd(options) || options.rdzv_dir;
    if (meeting_point && (options.local_nodes || options.standalone)) {
        options.notes.push_back(fmt::format("{} has no effect beside {}",
                                            uses_etcd(options) ? "--rdzv-backend etcd" : "--rdzv-dir",
                                            options.local_nodes ? "--local-nodes" : "--standalone"));
    } else if (options.rdzv_dir && options.rdzv_endpoint) {
        options.notes.push_back("--rdzv-endpoint has no effect beside --rdzv-dir");
    } else if (meeting_point && options.master_addr) {
        options.notes.push_back(fmt::format("--master-addr has no effect beside {}",
                                            uses_etcd(options) ? "--rdzv-backend etcd" : "--rdzv-dir"));
    }
    if (options.local_nodes && (options.rdzv_endpoint || options.master_addr || options.master_port)) {
        options.notes.push_back(
            fmt::format("{} has no effect beside --local-nodes, whose nodes meet on a free port of 127.0.0.1",
                        options.rdzv_endpoint ? "--rdzv-endpoint" : "--master-addr or --master-port"));
    }
    const bool alone = options.standalone || (options.nodes.max == 1 && !meeting_point && !options.rdzv_endpoint &&
                                              !options.master_addr && !options.master_port);
    if (options.spare && (options.local_nodes || alone)) {
        options.notes.push_back(
            options.local_nodes ? "--spare has no effect beside --local-nodes, which starts the nodes of the job only"
                                : "--spare has no effect: no other node can join this job. Name an endpoint");
    }
    if (line.given.contains("scale-up") && options.nodes.min == options.nodes.max)
        options.notes.push_back(
            "--scale-up has no effect: the number of nodes is fixed (--nnodes MIN:MAX allows growth)");
    if (options.local_nodes && options.node_rank)
        options.notes.push_back("--node-rank has no effect beside --local-nodes, which numbers its nodes itself");
    if (options.standalone && !options.local_nodes && (options.master_addr || options.master_port)) {
        options.notes.push_back(
            fmt::format("--{} has no effect beside --standalone", options.master_addr ? "master-addr" : "master-port"));
    }
    // A variable of the environment may be meant for other jobs.
    if (line.given.contains("log-line-prefix-template") && !options.label && !options.fold && !options.tee.any()) {
        options.notes.push_back("--log-line-prefix-template has no effect without --label, --fold or --tee");
    }
    for (const std::string_view name : {"duplicate-stdout-filters", "duplicate-stderr-filters"}) {
        if (!line.given.contains(name) || (options.tee.any() && writes_files(options))) continue;
        options.notes.push_back(fmt::format("--{} has no effect without --tee and --log-dir", name));
    }
    if (line.given.contains("log-max-size") && !writes_files(options))
        options.notes.push_back("--log-max-size has no effect without --log-dir or --redirects");
    if (line.given.contains("log-keep") && options.max_log_bytes == 0)
        options.notes.push_back("--log-keep has no effect without --log-max-size");
    if (options.standalone && options.rdzv_endpoint && !options.local_nodes) {
        options.notes.push_back("--rdzv-endpoint has no effect beside --standalone");
    }
    if ((options.master_addr || options.master_port) && options.rdzv_endpoint) {
        (names_two_endpoints(options) ? options.notes : options.details)
            .push_back("--master-addr and --master-port have no effect beside --rdzv-endpoint");
    }
}

}  // namespace

bool wants_temporary_log_dir(const Options& options) { return !options.log_dir && options.redirects.any(); }

bool writes_files(const Options& options) {
    return wants_temporary_log_dir(options) || !options.log_dir.value_or("").empty();
}

bool names_static_master(const Options& options) {
    const bool by_rank = options.rdzv_backend == RdzvBackend::kUnnamed && options.node_rank;
    return (options.rdzv_backend == RdzvBackend::kStatic || by_rank) && options.nodes.min == options.nodes.max;
}

std::chrono::milliseconds connect_timeout(const Options& options, bool elsewhere) {
    constexpr std::chrono::seconds kPresentDefault{10};
    constexpr std::chrono::seconds kDefault{60};
    constexpr std::chrono::seconds kStaticDefault{900};
    const RdzvConf& conf = options.rdzv_conf;
    if (conf.read_timeout) return *conf.read_timeout;
    if (!elsewhere) return kPresentDefault;
    if (options.rdzv_backend == RdzvBackend::kC10d || uses_etcd(options)) return kDefault;
    return conf.join_timeout.value_or(options.nodes.max == 1 ? kDefault : kStaticDefault);
}

Result<Invocation> parse_options(const std::vector<std::string>& arguments, const Environment& environment) {
    auto line = read_command_line(arguments);
    if (!line) return line.error();
    Invocation invocation;
    invocation.print = std::move(line->print);
    if (!invocation.print.empty()) return invocation;

    Options& options = invocation.options;
    const ProgramLine& first = line->programs.front();
    options.programs.front().command = first.command;
    options.programs.front().check = first.check;
    for (const OptionRow& row : option_table()) {
        const auto source = source_of(row, first, environment);
        if (!source) continue;
        const Result<void> applied = row.apply(options, source->text);
        if (!applied) return with_context(source->shown, applied.error());
        if (row.name == "log-line-prefix-template") options.label_source = source->name;
    }
    if (uses_etcd(options) && options.etcd_servers.empty())
        options.etcd_servers.push_back({"localhost", kDefaultEtcdPort});
    if (const Result<void> checked = check_variables(environment); !checked) return checked.error();
    derive(options);
    const auto is_given = [&](std::string_view name) {
        const auto row = std::ranges::find(option_table(), name, &OptionRow::name);
        return source_of(*row, first, environment).has_value();
    };
    const Given given{is_given("nnodes"), is_given("nproc-per-node") || is_given("gpus")};
    if (const Result<void> completed = complete_from_allocation(options, given, environment); !completed)
        return completed.error();
    const auto ends_at = job_end(environment);
    if (!ends_at) return ends_at.error();
    options.job_ends_at = *ends_at;
    if (const Result<void> checked = check_together(options); !checked) return checked.error();
    if (const Result<void> checked = check_meeting_point(options); !checked) return checked.error();
    const bool several = line->programs.size() > 1;
    if (const Result<void> checked = check_program(options.programs.front(), several); !checked) {
        return several ? with_context("program 1", checked.error()) : checked.error();
    }
    for (std::size_t index = 1; index < line->programs.size(); ++index) {
        const Result<void> added = add_further_program(options, line->programs[index]);
        if (!added) return with_context(numbered(line->programs[index], index), added.error());
    }
    if (const Result<void> checked = check_roles(options.programs); !checked) return checked.error();

    add_notes(options, first);
    note_unread_variables(options, environment);
    if (is_set(environment, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE")) {
        options.details.push_back(
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 has no effect: workers use the store of ddprund");
    }
    return invocation;
}

std::string named_report(const std::vector<std::string>& arguments, const Environment& environment) {
    const auto line = read_first_options(arguments);
    const auto row = std::ranges::find(option_table(), "report", &OptionRow::name);
    const auto source = line ? source_of(*row, *line, environment) : std::nullopt;
    Options options;
    if (!source || !row->apply(options, source->text)) return "";
    return options.report.value_or("");
}

}  // namespace ddprun::launcher
