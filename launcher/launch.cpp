#include "launcher/launch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "agent/agent.hpp"
#include "agent/guard/start_guard.hpp"
#include "agent/output/log_files.hpp"
#include "common/exit_codes.hpp"
#include "common/logging.hpp"
#include "common/print.hpp"
#include "launcher/host_daemon.hpp"
#include "launcher/limits.hpp"
#include "launcher/local_cluster.hpp"
#include "launcher/options.hpp"
#include "launcher/placement.hpp"
#include "launcher/program.hpp"
#include "launcher/slots.hpp"
#include "launcher/this_host.hpp"

namespace ddprun::launcher {
namespace {

// A daemon that serves this machine alone has no late comers to wait for, only agents that are just starting.
constexpr std::chrono::seconds kLingerAlone{5};
constexpr std::chrono::seconds kLingerShared{10};
// The daemon says goodbye to all agents and ends when it has given its verdict; ddprun ends after it if that is soon.
constexpr std::chrono::seconds kGoodbye{2};  // the daemon may wait a second for a node that was cut off at the end

/// All that was found out before the first process is started.
struct Plan {
    Options options;
    std::vector<std::string> command;   ///< argv of a worker
    int slots = 1;
    int cpus = 1;
    Placement placement;
};

int refuse(const Error& error, int code) {
    std::fputs(fmt::format("ddprun: {}\n", error.message).c_str(), stderr);   // fmt::print throws when stderr takes nothing
    return code;
}

int code_of_program_error(const Error& error) {
    return error.code == Errc::kNotFound ? exit_code::kProgramNotFound : exit_code::kCannotExecute;
}

/// Another node may have more workers, so that this is no error.
void note_absent_ranks(Options& options, int slots) {
    const auto is_absent = [slots](int rank) { return rank >= slots; };
    const auto absent = std::ranges::find_if(options.console_ranks, is_absent);
    if (absent == options.console_ranks.end()) return;
    options.notes.push_back(fmt::format("--local-ranks-filter: no local rank {} among the {} of this node{}", *absent, slots,
                                        std::ranges::all_of(options.console_ranks, is_absent)
                                            ? ", so that nothing its workers print is shown" : ""));
}

/// Before anything is started: whoever asked for files wants them. What becomes unusable later costs a warning.
Result<void> check_log_dir(const Options& options) {
    if (options.log_dir.value_or("").empty()) return {};
    const Result<void> usable = agent::prepare_log_dir(*options.log_dir);
    if (usable) return {};
    Error error = with_context(fmt::format("cannot keep log files in {}", *options.log_dir), usable.error());
    error.message += ". Pass a --log-dir that this user can write to, or --log-dir /dev/null for no files.";
    return error;
}

Demand demand_of(const Plan& plan) {
    return {plan.slots, plan.options.local_nodes ? plan.options.nodes.max : 1,
            !plan.options.log_dir.value_or("").empty()};
}

std::optional<std::string> look_up_address_here(const std::string& host) {
    return address_here(host, resolve(host), this_host());
}

DaemonRequest daemon_request(const Plan& plan) {
    DaemonRequest request;
    request.bind = plan.placement.endpoint;
    request.run_id = plan.options.rdzv_id;
    request.linger = plan.placement.part == Placement::Part::kHost ? kLingerShared : kLingerAlone;
    request.join_timeout = plan.options.rdzv_conf.join_timeout;
    request.last_call = plan.options.rdzv_conf.last_call_timeout;
    return request;
}

Result<Hosted> meet(const Plan& plan) {
    if (plan.placement.part == Placement::Part::kJoin) return Hosted{plan.placement.endpoint, false, {}};
    DaemonRequest request = daemon_request(plan);
    auto program = own_program(own_folder(), "ddprund");
    if (!program) return program.error();
    request.program = *program;
    return host_or_join(request);
}

void say_where(const Plan& plan, const Hosted& hosted) {
    if (plan.options.as_local_node || hosted.endpoint.port != plan.placement.endpoint.port) return;   // nobody has to know it
    spdlog::debug("{} the rendezvous at {} ({})", hosted.started_here ? "hosting" : "joining", to_string(hosted.endpoint),
                  plan.placement.reason);
    const bool loopback = hosted.endpoint.host == "127.0.0.1" || hosted.endpoint.host == "::1";
    if (hosted.started_here && loopback && plan.options.nodes.max > 1) {
        spdlog::info("only this machine can join at {}; for several machines pass --rdzv-endpoint HOST to each of them",
                     to_string(hosted.endpoint));
    }
}

agent::AgentConfig agent_config(Plan plan, const Endpoint& endpoint) {
    const Options& options = plan.options;
    agent::AgentConfig config;
    config.endpoint = endpoint;
    config.run_id = options.rdzv_id;
    config.node_name = this_host().name;
    config.node_rank = options.node_rank;
    config.min_nodes = options.nodes.min;
    config.max_nodes = options.nodes.max;
    config.slots = plan.slots;
    config.max_restarts = options.max_restarts;
    config.role = options.role;
    config.program_name = program_name(options, plan.command);
    config.program_line = program_line(options);
    config.command = std::move(plan.command);
    config.connect_timeout = options.rdzv_conf.read_timeout.value_or(config.connect_timeout);
    config.grace = options.grace;
    config.stall_warning = options.stall_warning;
    config.virtual_local_rank = options.virtual_local_rank;
    config.drain_signals = options.drain_signals;
    config.output.log_dir = options.log_dir.value_or("");
    config.output.redirect_to_files = options.redirects == StreamCode::kBoth;
    config.output.tee = options.tee == StreamCode::kBoth;
    config.output.label = options.label;
    config.output.label_template = options.label_template;
    config.output.console_ranks = options.console_ranks;
    if (options.as_local_node) {
        const int index = options.as_local_node->index;
        config.node_name = local_node_name(index);
        config.node_rank = index;
        config.emulated = true;
        config.last_words = UniqueFd(options.as_local_node->last_words_fd);
        if (config.last_words) ::fcntl(config.last_words.get(), F_SETFD, FD_CLOEXEC);
    }
    return config;
}

/// The nodes share this machine's CPUs, which none of them can know by itself.
void share_cpus(const Plan& plan) {
    const int workers = plan.options.nodes.max * plan.slots;
    const std::string threads = std::to_string(std::max(1, plan.cpus / workers));
    if (std::getenv("OMP_NUM_THREADS") != nullptr) return;   // what the user set is never overwritten
    ::setenv("OMP_NUM_THREADS", threads.c_str(), 1);
    spdlog::debug("OMP_NUM_THREADS={} for each worker: {} allowed CPUs, {} workers", threads, plan.cpus, workers);
}

/// For the launcher of emulated nodes, instead of watching its guard: it may be stopped, or held up by a console that
/// takes nothing. Without it each node ends by itself.
bool die_with_guard(pid_t guard) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return ::getppid() == guard;  // else it died before we asked to be told
}

int emulate(const Plan& plan, const std::vector<std::string>& arguments, Hosted hosted,
            const std::filesystem::path& guard_path) {
    share_cpus(plan);
    const pid_t guard = ::getpid();  // the parent below keeps it
    const UniqueFd unread = agent::become_guarded(guard_path);
    if (!die_with_guard(guard)) return exit_code::kInternal;
    LocalCluster cluster;
    cluster.arguments = arguments;
    cluster.nodes = plan.options.nodes.max;
    cluster.workers_per_node = plan.slots;
    cluster.program_name = program_name(plan.options, plan.command);
    cluster.min_nodes = plan.options.nodes.min;
    cluster.endpoint = hosted.endpoint;
    cluster.daemon_lifeline = hosted.lifeline.get();
    cluster.grace = plan.options.grace;
    cluster.drain_signals = plan.options.drain_signals;
    const int code = run_local_cluster(cluster);
    await_end_of_daemon(hosted.lifeline, kGoodbye);
    return code;
}

int run(Plan plan, const std::vector<std::string>& arguments) {
    const std::filesystem::path guard = agent::find_guard();   // before anything is started that its absence would leave behind
    auto hosted = meet(plan);
    if (!hosted) return refuse(hosted.error(), exit_code::kInfrastructure);
    say_where(plan, *hosted);
    if (plan.placement.part == Placement::Part::kEmulate) return emulate(plan, arguments, std::move(*hosted), guard);

    agent::AgentConfig config = agent_config(std::move(plan), hosted->endpoint);
    config.guard_pipe = agent::become_guarded(guard, config.emulated ? agent::Leads::kGroup : agent::Leads::kSession);
    const int code = agent::run_agent(std::move(config));
    if (hosted->started_here) await_end_of_daemon(hosted->lifeline, kGoodbye);
    return code;
}

}  // namespace

int launch(const std::vector<std::string>& arguments) {
    ::prctl(PR_SET_NAME, "ddprun");   // an emulated node is executed as /proc/self/exe, and would be called "exe"
    const Environment environment = parse_environment(::environ);
    auto invocation = parse_options(arguments, environment);
    if (!invocation) return refuse(invocation.error(), exit_code::kUsage);
    if (!invocation->print.empty()) {
        const Result<void> printed = print_to_stdout(invocation->print);
        return printed ? exit_code::kSuccess : refuse(printed.error(), exit_code::kOutput);
    }

    init_logging("ddprun");
    Plan plan;
    plan.options = std::move(invocation->options);

    const Machine machine = this_machine(environment);
    plan.cpus = machine.cpus;
    const auto slots = worker_count(plan.options.slots, machine);
    if (!slots) return refuse(slots.error(), exit_code::kUsage);
    plan.slots = *slots;
    note_absent_ranks(plan.options, plan.slots);
    if (const Result<void> enough = check_gpus(plan.options, plan.slots, environment); !enough)
        return refuse(enough.error(), exit_code::kUsage);
    if (plan.options.local_nodes && plan.options.nodes.max > kMaxLocalNodes) {
        return refuse({Errc::kLimit, fmt::format("--nnodes {}: --local-nodes emulates at most {} nodes on one machine.",
                                                 plan.options.nodes.max, kMaxLocalNodes)}, exit_code::kUsage);
    }
    auto command = worker_command(plan.options, environment, search_path(environment, own_folder()));
    if (!command) return refuse(command.error(), code_of_program_error(command.error()));
    plan.command = std::move(*command);
    if (const Result<void> usable = check_log_dir(plan.options); !usable) return refuse(usable.error(), exit_code::kUsage);
    if (const Result<void> enough = check_limits(demand_of(plan), process_limits()); !enough) {
        return refuse(enough.error(), exit_code::kInfrastructure);
    }
    auto placement = place(plan.options, look_up_address_here);
    if (!placement) return refuse(placement.error(), exit_code::kUsage);
    plan.placement = std::move(*placement);

    if (!plan.options.as_local_node) {   // the launcher of the nodes has said it
        for (const std::string& note : plan.options.notes) spdlog::info("{}", note);
    }
    return run(std::move(plan), arguments);
}

}  // namespace ddprun::launcher
