#include "launcher/launch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string_view>

#include "agent/agent.hpp"
#include "agent/guard/keeper.hpp"
#include "agent/guard/start_guard.hpp"
#include "agent/output/console.hpp"
#include "agent/output/log_files.hpp"
#include "agent/output/log_sink.hpp"
#include "agent/output/shared_lines.hpp"
#include "agent/signal_source.hpp"
#include "common/exit_codes.hpp"
#include "common/job_key.hpp"
#include "common/logging.hpp"
#include "common/system/standard_fds.hpp"
#include "common/text/list.hpp"
#include "common/text/print.hpp"
#include "launcher/agent_settings.hpp"
#include "launcher/dry_run.hpp"
#include "launcher/fence.hpp"
#include "launcher/host/gpus.hpp"
#include "launcher/host/placement.hpp"
#include "launcher/host/temporary_log_dir.hpp"
#include "launcher/host/this_host.hpp"
#include "launcher/host_daemon.hpp"
#include "launcher/job_meeting.hpp"
#include "launcher/local_cluster.hpp"
#include "launcher/meeting/find_daemon.hpp"
#include "launcher/options/options.hpp"
#include "launcher/output_settings.hpp"
#include "launcher/plan.hpp"
#include "launcher/program.hpp"
#include "launcher/report_files.hpp"
#include "launcher/ssh_job.hpp"
#include "launcher/ssh_node.hpp"
#include "launcher/worker_resources.hpp"
#include "rendezvous/client/security.hpp"

namespace ddprun::launcher {
namespace {

// A daemon that serves this machine alone waits only for agents that are just starting, not for late nodes.
constexpr std::chrono::seconds kLingerAlone{5};
constexpr std::chrono::seconds kLingerShared{10};
// After its verdict the daemon closes all connections and ends. ddprun waits this long for that; the daemon may wait a
// second for a node that was cut off at the end.
constexpr std::chrono::seconds kDaemonEndTimeout{2};
// Of more nodes the daemon names none (coordinator/waiting.cpp), and their list might be too long for an argument.
constexpr std::size_t kMaxNamedHosts = 64;

/// Where the report goes if the job cannot run, and which job it is about.
struct ReportTarget {
    std::string path;  ///< empty: no report is wanted, or the launcher of emulated nodes writes it
    agent::JobName job = {};
};

std::string typed_names(const std::vector<Program>& programs) {
    std::vector<std::string> names;
    for (const Program& program : programs) names.push_back(program.command.front());
    return list_of(std::move(names));
}

ReportTarget report_target(const Plan& plan) {
    const Options& options = plan.options;
    const bool found = plan.programs.size() == options.programs.size();
    return {options.as_local_node || options.dry_run ? "" : options.report.value_or(""),
            {.program = typed_names(options.programs),
             .run_id = options.rdzv_id.value_or(""),
             .started = found ? started_command(plan.programs) : typed_command(options.programs)}};
}

int refuse(const Error& error, int code, const ReportTarget& report = {}) {
    std::fputs(fmt::format("ddprun: {}\n", error.message).c_str(), stderr);  // fmt::print might throw
    write_report(report.path, refusal_report(error, code, report.job));
    return code;
}

/// Returns the silence after which a node is lost, with torchrun's value for a setting that is missing; nullopt: the
/// daemon has its own.
std::optional<std::chrono::milliseconds> lost_after(const RdzvConf& conf) {
    if (!conf.keep_alive_interval && !conf.keep_alive_attempts) return std::nullopt;
    const std::chrono::milliseconds product =
        conf.keep_alive_interval.value_or(std::chrono::seconds(5)) * conf.keep_alive_attempts.value_or(3);
    return std::clamp<std::chrono::milliseconds>(product, std::chrono::seconds(1), std::chrono::hours(24));
}

DaemonRequest daemon_request(const Plan& plan) {
    DaemonRequest request;
    request.bind = plan.placement.endpoint;
    request.store_address = plan.local_address;
    request.run_id = plan.options.rdzv_id;
    request.insecure = plan.options.insecure;
    request.store_vouch = plan.options.store_vouch;
    request.verbose = plan.options.verbose;
    if (!plan.placement.ports.empty()) {
        const Allocation& allocation = *plan.options.allocation;
        request.step = allocation.name;
        if (allocation.hosts.size() <= kMaxNamedHosts) request.hosts = allocation.hosts;
    }
    const bool shared = plan.placement.part == Placement::Part::kHost || plan.placement.part == Placement::Part::kMeet;
    request.linger = shared ? kLingerShared : kLingerAlone;
    request.join_timeout = plan.options.rdzv_conf.join_timeout;
    request.last_call = plan.options.rdzv_conf.last_call_timeout;
    request.lost_after = lost_after(plan.options.rdzv_conf);
    return request;
}

/// Returns whether this node may be connected to another host.
bool may_leave_host(const Placement& placement) {
    using Part = Placement::Part;
    if (placement.part == Part::kAlone || placement.part == Part::kEmulate) return false;
    return placement.part == Part::kMeet || ddprun::may_leave_host(placement.endpoint);
}

/// Returns the job key for TLS. A job of one node does without a usable home: if its user names no key, it gets one of
/// its own, which its daemon inherits. Errors: those of JobKey::load().
Result<JobKey> job_key_of(const Plan& plan, const Environment& environment) {
    auto key = JobKey::load(environment);
    if (key) spdlog::debug("the job key is from {}", key->origin());
    const bool is_alone = plan.options.nodes.max == 1 && plan.placement.part == Placement::Part::kHost;
    if (key || !is_alone || names_job_key(environment)) return key;
    spdlog::debug("this job of one node has a random key: {}", key.error().message);
    key = JobKey::draw();
    if (key) ::setenv(kJobKeyVariable, key->text().c_str(), 1);
    return key;
}

/// Returns the rules for connections of this node to other hosts. Errors: those of JobKey::load() and
/// Credentials::make().
Result<client::Security> security_of(const Plan& plan, const Environment& environment) {
    if (plan.options.insecure || !may_leave_host(plan.placement))
        return client::make_security({}, plan.options.insecure);
    auto key = job_key_of(plan, environment);
    return key ? client::make_security(*key, false) : key.error();
}

/// Returns the endpoint of a daemon on another host; waits for that of an allocation. Errors: those of find_daemon().
Result<Endpoint> endpoint_to_join(const Plan& plan) {
    const Placement& placement = plan.placement;
    if (placement.ports.empty()) return placement.endpoint;
    const Allocation& allocation = *plan.options.allocation;
    return find_daemon({placement.endpoint.host, placement.ports, allocation.name, allocation.title},
                       connect_timeout(plan.options, true), [](const std::string& line) { spdlog::info("{}", line); });
}

/// Finds or starts the daemon of this job. `meeting` is empty unless the placement is kMeet.
Result<DaemonOfJob> begin_daemon(const Plan& plan, std::optional<JobMeeting>& meeting) {
    if (plan.placement.part == Placement::Part::kJoin) {
        auto endpoint = endpoint_to_join(plan);
        return endpoint ? Result<DaemonOfJob>(DaemonOfJob(Hosted{*endpoint, false})) : endpoint.error();
    }
    DaemonRequest request = daemon_request(plan);
    const auto look_up_here = [](const std::string& host) {
        return address_here(host, look_up(host, "Pass --local-addr with a numeric address"), this_host());
    };
    const std::vector<std::uint16_t>& ports = plan.placement.ports;
    if (!meeting && ports.empty()) return DaemonOfJob::begin(request);
    auto hosted = meeting ? meeting->host_or_join(request, look_up_here) : host_or_join_step(request, ports);
    return hosted ? Result<DaemonOfJob>(DaemonOfJob(std::move(*hosted))) : hosted.error();
}

/// Reports why there is no daemon. Returns the exit code.
int refuse_daemon(const Error& error, const ReportTarget& report) {
    return refuse(error, error.code == Errc::kUsage ? exit_code::kUsage : exit_code::kInfrastructure, report);
}

void report_endpoint(const Plan& plan, const Hosted& hosted) {
    if (plan.options.as_local_node) return;
    spdlog::debug("{} the rendezvous at {} ({})", hosted.started_here ? "hosting" : "joining",
                  to_string(hosted.endpoint), plan.placement.reason);
    if (plan.options.insecure && !hosted.started_here && may_leave_host(plan.placement)) {
        spdlog::warn(
            "INSECURE: --insecure turns off authentication and encryption of the connection to {}: use a network that "
            "you trust, or leave out --insecure on all nodes",
            to_string(hosted.endpoint));
    }
    const bool named_port = hosted.endpoint.port == plan.placement.endpoint.port;  // else a free one of this job alone
    const bool loopback = hosted.endpoint.host == "127.0.0.1" || hosted.endpoint.host == "::1";
    if (named_port && hosted.started_here && loopback && plan.options.nodes.max > 1) {
        spdlog::info("only this machine can join at {}; for several machines pass --rdzv-endpoint HOST to each of them",
                     to_string(hosted.endpoint));
    }
}

/// Returns OMP_NUM_THREADS of each worker that is not bound.
int threads_of(const Plan& plan) {
    const int nodes = plan.options.local_nodes ? plan.options.nodes.max : 1;
    return agent::threads_per_worker(plan.cpus, nodes * plan.slots);
}

/// Divides this machine's CPUs among the workers of all emulated nodes, unless they are bound: then each node does
/// that.
void share_cpus(const Plan& plan) {
    if (!plan.resources.bindings.empty()) return;
    const int workers = plan.options.nodes.max * plan.slots;
    const std::string threads = std::to_string(threads_of(plan));
    if (std::getenv("OMP_NUM_THREADS") != nullptr) return;  // a value of the user's is never overwritten
    ::setenv("OMP_NUM_THREADS", threads.c_str(), 1);
    spdlog::debug("OMP_NUM_THREADS={} for each worker: {} allowed CPUs, {} workers", threads, plan.cpus, workers);
}

/// Makes the kernel kill the launcher of emulated nodes when its guard dies. The launcher cannot watch the guard: it
/// may be stopped, or blocked by a console that takes nothing. Without the launcher each node ends by itself.
bool die_with_guard(pid_t guard) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return ::getppid() == guard;  // else it died before prctl()
}

/// Returns whether the daemon has ended, so that no process of the job is left when its ddprun ends.
bool ends_after_release(const UniqueFd& lifeline) {
    release_daemon(lifeline);
    return daemon_ends_within(lifeline, kDaemonEndTimeout);
}

/// Reports that the daemon of this host goes on: for nodes of a job that this one has left, or in case lost ones
/// return.
void report_daemon_left(const Hosted& hosted) {
    if (!stderr_has_room()) return;
    spdlog::warn(
        "other nodes of the job have not ended, or were lost a moment ago, and may use the rendezvous daemon of this "
        "host: leave ddprund{} alone and this host up until it ends by itself",
        hosted.pid > 0 ? fmt::format(" (pid {})", hosted.pid) : "");
}

int emulate(Plan plan, const std::vector<std::string>& arguments, DaemonOfJob daemon,
            const std::filesystem::path& guard_path) {
    const ReportTarget report = report_target(plan);
    share_cpus(plan);
    const pid_t guard = ::getpid();  // the parent keeps it after the fork below
    const agent::GuardPipes unread = agent::become_guarded(guard_path);
    if (!die_with_guard(guard)) return exit_code::kInternal;
    const auto hosted = daemon.wait();
    if (!hosted) return refuse_daemon(hosted.error(), report);
    report_endpoint(plan, *hosted);
    boost::asio::io_context io(1);
    const UniqueFd open_lines = agent::SharedLines::make();
    agent::Console console(io, STDOUT_FILENO, STDERR_FILENO, agent::SharedLines(open_lines.get(), kLauncherAsWriter));
    const agent::ConsoleLog console_log(console, log_start(plan.options));
    LocalCluster cluster{.console = console, .open_lines_fd = open_lines.get()};
    cluster.arguments = arguments;
    if (const std::string& folder = plan.temporary_log_dir.path(); !folder.empty())
        cluster.arguments.insert(cluster.arguments.begin(), {"--temporary-log-dir", folder});
    cluster.timestamps = plan.options.timestamps;
    cluster.nodes = plan.options.nodes.max;
    cluster.workers_per_node = plan.slots;
    cluster.guard_program = agent::program_file(guard_path.c_str());
    cluster.min_nodes = plan.options.nodes.min;
    cluster.endpoint = hosted->endpoint;
    cluster.daemon_lifeline = hosted->lifeline.get();
    cluster.grace = plan.options.grace;
    cluster.handled_signals = plan.options.handled_signals;
    const ClusterEnd end = run_local_cluster(cluster);
    const int code = end.exit_code;
    console.drain(std::chrono::milliseconds(0));  // users see the outcome before a slow file system is waited for
    if (!report.path.empty()) write_report(report.path, cluster_report(end, report.job));
    const std::string kept = agent::files_kept_text(plan.temporary_log_dir.path());
    if (plan.temporary_log_dir.release(code == exit_code::kSuccess)) spdlog::info("{}", kept);
    agent::end_on_stop_signal(code);  // they were blocked until now; the job's end is known
    const bool interrupted = code != exit_code::kSuccess && end.stop_signal != 0;  // of a failed job, too
    agent::drain_at_end(console, interrupted ? exit_code::kSignalBase + end.stop_signal : code, "", end.console_full);
    (void)ends_after_release(hosted->lifeline);
    return code;
}

agent::GuardSettings guard_settings(const Plan& plan, const ChosenFence& fence) {
    agent::GuardSettings settings;
    if (plan.options.as_local_node) settings.leads = agent::Leads::kGroup;
    if (fence.group) settings.control_group = fence.group->path();
    settings.pid_namespace = fence.pid_namespace;
    return settings;
}

/// Prints the plan instead of starting it. Returns the exit code.
int print_plan(const Plan& plan, const Environment& environment) {
    DryRun run{plan.options, plan.programs, plan.placement, this_host().name, plan.slots, plan.resources, {}};
    auto& bindings = run.resources.bindings;
    if (bindings.empty()) bindings = {{cpu_mask(allowed_cpu_set()), {}, threads_of(plan)}};
    if (const auto set = environment.find("OMP_NUM_THREADS"); set != environment.end()) run.threads = set->second;
    const Result<void> printed = print_to_stdout(dry_run_text(run));
    return printed ? exit_code::kSuccess : refuse(printed.error(), exit_code::kOutput);
}

int run(Plan plan, std::optional<JobMeeting> meeting, const std::vector<std::string>& arguments,
        const Environment& environment) {
    const ReportTarget report = report_target(plan);
    // Looks for the guard before anything is started, because a daemon would be left behind without it.
    const std::filesystem::path guard = agent::find_guard();
    if (const Result<void> offered = probe_fence(plan.options.fence); !offered)
        return refuse(offered.error(), exit_code::kUsage, report);
    auto security = security_of(plan, environment);
    if (!security) return refuse(security.error(), exit_code::kUsage, report);
    auto daemon = begin_daemon(plan, meeting);
    if (!daemon) return refuse_daemon(daemon.error(), report);
    ::unsetenv(kJobKeyVariable);  // the daemon has inherited it, and workers do not need it
    agent::hold_stop_signals();   // until the agent, or the launcher of emulated nodes, has its handlers
    const auto refuse_with_daemon = [&](const Error& error) {
        const auto hosted = daemon->wait();
        const bool ended = hosted && hosted->started_here && ends_after_release(hosted->lifeline);
        if (meeting && ended) meeting->withdraw();
        return refuse(error, exit_code::kUsage, report);
    };
    auto temporary_log_dir = make_temporary_log_dir(plan.options, environment);
    if (!temporary_log_dir) return refuse_with_daemon(temporary_log_dir.error());
    const bool several_nodes = plan.options.nodes.max > 1;
    if (plan.placement.part == Placement::Part::kEmulate) {
        plan.temporary_log_dir = std::move(*temporary_log_dir);
        return emulate(std::move(plan), arguments, std::move(*daemon), guard);
    }
    auto fence = make_fence(plan.options.fence);  // while signals are held: one of them would leave the group behind
    if (!fence) return refuse_with_daemon(fence.error());
    const bool first_here = !plan.options.as_local_node || plan.options.as_local_node->index == 0;
    if (first_here) spdlog::debug("fence: {}", fence->description);
    agent::GuardPipes pipes = agent::become_guarded(guard, guard_settings(plan, *fence));
    auto hosted = daemon->wait();
    if (!hosted) return refuse_daemon(hosted.error(), report);
    report_endpoint(plan, *hosted);
    agent::AgentConfig config = agent_config(std::move(plan), hosted->endpoint);
    config.security = std::move(*security);
    config.control_group = fence->group ? fence->group->path() : "";
    config.joins_control_group = fence->group && fence->group->has_to_be_joined();
    config.guard_pipe = std::move(pipes.guard_pipe);
    config.keeper_lifeline = std::move(pipes.keeper_lifeline);
    config.standby = std::move(hosted->standby);
    const int code = agent::run_agent(std::move(config));
    temporary_log_dir->release(code == exit_code::kSuccess);  // the agent has printed its path if files are left there
    const bool ended = hosted->started_here && ends_after_release(hosted->lifeline);
    if (meeting && ended) meeting->withdraw();  // else other nodes still use the daemon
    if (several_nodes && hosted->started_here && !ended && code > exit_code::kSignalBase) report_daemon_left(*hosted);
    return code;
}

/// Checks everything that can be checked before anything is started, and starts it. Keeps `report` up to date.
int prepare_and_run(Plan plan, ReportTarget& report, const std::vector<std::string>& arguments,
                    Environment& environment) {
    if (const Result<void> applied = apply_gpus(plan.options, environment); !applied)
        return refuse(applied.error(), exit_code::kUsage, report);
    const std::optional<Refusal> refused = prepare(plan, environment);
    report = report_target(plan);
    if (refused) return refuse(refused->error, refused->code, report);
    if (const Result<void> ready = prepare_report(report.path, plan.options.events.value_or("")); !ready)
        return refuse(ready.error(), exit_code::kUsage);
    if (!plan.options.as_local_node) {  // the launcher of the nodes has reported both
        for (const std::string& note : plan.options.notes) spdlog::info("{}", note);
        for (const std::string& detail : plan.options.details) spdlog::debug("{}", detail);
        if (const Interpreter* const python = interpreter_of(plan))
            spdlog::debug("interpreter of the program: {} ({})", python->path, python->reason);
        warn_of_lost_output(plan.options, plan.slots);
    }
    std::optional<JobMeeting> meeting;
    if (plan.placement.part == Placement::Part::kMeet) {
        auto made = JobMeeting::make(plan.options, environment);
        if (!made) return refuse(made.error(), exit_code::kUsage, report);
        meeting = std::move(*made);
    }
    if (plan.options.dry_run) return print_plan(plan, environment);
    return run(std::move(plan), std::move(meeting), arguments, environment);
}

/// Unblocks the signals that this process was started with blocked: a program that starts ddprun from a thread with a
/// signal mask passes that mask on, and a blocked SIGTERM could not end the job. Takes back an ignored SIGCHLD: the
/// kernel would reap children unseen, and their pids could become those of others. USR1 and USR2 wait until the agent
/// runs: a notice of preemption must not be lost in the start. An emulated node goes on holding what its launcher
/// holds.
void accept_signals(const std::vector<std::string>& arguments) {
    ::signal(SIGCHLD, SIG_DFL);
    sigset_t waiting;
    ::sigemptyset(&waiting);
    for (const int signal : {SIGUSR1, SIGUSR2}) ::sigaddset(&waiting, signal);
    const bool is_local_node = !arguments.empty() && arguments.front() == "--as-local-node";
    ::sigprocmask(is_local_node ? SIG_BLOCK : SIG_SETMASK, &waiting, nullptr);
    for (const int signal : {SIGUSR1, SIGUSR2}) ::signal(signal, SIG_DFL);  // ignored, they would not wait
}

}  // namespace

int launch(const std::vector<std::string>& arguments) {
    accept_signals(arguments);
    if (arguments == std::vector<std::string>{std::string(kSshNodeArgument)}) return run_ssh_node();
    Environment environment = parse_environment(::environ);
    ::unsetenv(kPasswordVariable);  // workers do not need it, whether this job uses etcd or not
    auto invocation = parse_options(arguments, environment);
    init_logging("ddprun", log_start(invocation ? invocation->options : Options()));
    if (!invocation) return refuse(invocation.error(), exit_code::kUsage, {named_report(arguments, environment)});
    if (!invocation->print.empty()) {
        const Result<void> printed = print_to_stdout(invocation->print);
        return printed ? exit_code::kSuccess : refuse(printed.error(), exit_code::kOutput);
    }

    if (invocation->options.verbose) spdlog::set_level(spdlog::level::debug);
    const bool starts_hosts = !invocation->options.hosts.empty() && !invocation->options.as_ssh_node;
    if (starts_hosts && !invocation->options.dry_run) {
        const auto code = run_ssh_job(invocation->options, arguments, environment);
        return code ? *code : refuse(code.error(), exit_code::kUsage, {named_report(arguments, environment)});
    }
    Plan plan;
    plan.options = std::move(invocation->options);
    if (const auto named = environment.find("TORCHELASTIC_ERROR_FILE"); named != environment.end())
        plan.error_file = named->second;
    const bool dry = plan.options.dry_run;
    if (!plan.options.as_local_node && !dry) clear_error_file(plan.error_file);
    ReportTarget report = report_target(plan);
    try {
        return prepare_and_run(std::move(plan), report, arguments, environment);
    } catch (const ErrorException& failure) {
        return refuse(failure.error(), exit_code::kInfrastructure, report);
    } catch (const std::exception& bug) {  // main() prints it
        const Error error{Errc::kSystem, fmt::format("internal error: {}", bug.what())};
        write_report(report.path, refusal_report(error, exit_code::kInternal, report.job));
        throw;
    }
}

}  // namespace ddprun::launcher
