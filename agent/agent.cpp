#include "agent/agent.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <filesystem>
#include <optional>
#include <utility>

#include "agent/daemon_link.hpp"
#include "agent/environment.hpp"
#include "agent/event_queue.hpp"
#include "agent/output/console.hpp"
#include "agent/output/log_files.hpp"
#include "agent/output/log_sink.hpp"
#include "agent/verdict_text.hpp"
#include "agent/worker_group.hpp"
#include "agent/worker_processes.hpp"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;
using coordinator::Assignment;

int allowed_cpus() {
    cpu_set_t set;
    return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

bool is_ignored(int signal) {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

coordinator::Join join_of(const AgentConfig& config) {
    coordinator::Join join;
    join.node = random_id();
    join.host = config.node_name;
    join.pid = ::getpid();
    join.slots = config.slots;
    join.min_nodes = config.min_nodes;
    join.max_nodes = config.max_nodes;
    join.max_restarts = config.max_restarts;
    join.run_id = config.run_id;
    join.node_rank = config.node_rank;
    return join;
}

class Agent {
public:
    Agent(asio::io_context& io, AgentConfig config);

    /// Waits for what happens, decides, acts; until the end. Returns the exit code.
    asio::awaitable<int> run();

private:
    void listen_to_signals();
    void watch_guard();
    void arm_deadline();

    // The actions.
    void perform(const StartWorkers& action);
    void perform(const SignalGroup& action);
    void perform(const NotifyWorkers& action);
    void perform(const ReportFailure& action);
    void perform(const SendMessage& action) { link_.send(action.message); }
    void perform(const Finish& action);

    [[nodiscard]] WorkerSpec worker_spec(const Assignment& assignment, LocalRank rank);
    [[nodiscard]] Route route(const Assignment& assignment, LocalRank rank, Console::Stream stream);
    [[nodiscard]] std::optional<ErrorFile> error_file(const Assignment& assignment, LocalRank rank);
    void warn_once(const std::string& warning);
    void show_waiting(const coordinator::Waiting& waiting);

    asio::io_context& io_;
    AgentConfig config_;
    std::string run_id_;
    EventQueue events_;
    Console console_;
    ConsoleLog console_log_;
    DaemonLink link_;
    State state_;
    std::optional<Assignment> assignment_;         ///< of the latest group
    std::optional<WorkerProcesses> workers_;       ///< of the latest group
    asio::signal_set stop_signals_;
    asio::signal_set notify_signals_;
    asio::posix::stream_descriptor guard_;
    std::array<char, 1> guard_byte_{};
    asio::steady_timer deadline_;
    std::string last_waiting_;
    std::string last_warning_;
    int exit_code_ = exit_code::kInternal;
};

Agent::Agent(asio::io_context& io, AgentConfig config)
    : io_(io), config_(std::move(config)), run_id_(config_.run_id.value_or("none")), events_(io),
      console_(io, STDOUT_FILENO, STDERR_FILENO), console_log_(console_),
      link_(io, config_.endpoint, join_of(config_), config_.connect_timeout,
            {[this](Event event) { events_.push(std::move(event)); },
             [this](const coordinator::Welcome& welcome) { run_id_ = welcome.run_id; },
             [this](const coordinator::Waiting& waiting) { show_waiting(waiting); }}),
      stop_signals_(io), notify_signals_(io, SIGUSR1, SIGUSR2), guard_(io), deadline_(io) {
    state_.grace = config_.grace;
    state_.slots = config_.slots;
}

asio::awaitable<int> Agent::run() {
    listen_to_signals();
    watch_guard();
    link_.start();
    while (state_.phase != Phase::kDone) {
        const Event event = co_await events_.next();   // the only place that waits
        Step taken = step(std::move(state_), event, Clock::now());
        state_ = std::move(taken.next);
        if (!taken.reason.empty()) spdlog::info("{}: {}", config_.node_name, taken.reason);
        for (const Action& action : taken.actions) {   // the only place that acts
            std::visit([this](const auto& what) { perform(what); }, action);
        }
        arm_deadline();
    }
    co_await link_.close();
    stop_signals_.clear();   // nothing is left to stop but ourselves, should the console take nothing more
    console_.drain();
    co_return exit_code_;
}

// ---- what happens ----------------------------------------------------------------------------------------------------

void Agent::listen_to_signals() {
    for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) {
        const bool nohup = signal == SIGHUP && is_ignored(SIGHUP);
        if (!nohup) stop_signals_.add(signal);
    }
    struct Again {
        static void stop(Agent& agent) {
            agent.stop_signals_.async_wait([&agent](const boost::system::error_code& error, int signal) {
                if (error) return;
                agent.events_.push(StopSignal{signal});
                stop(agent);
            });
        }
        static void notify(Agent& agent) {
            agent.notify_signals_.async_wait([&agent](const boost::system::error_code& error, int signal) {
                if (error) return;
                agent.events_.push(NotifySignal{signal});
                notify(agent);
            });
        }
    };
    Again::stop(*this);
    Again::notify(*this);
}

void Agent::watch_guard() {
    if (!config_.guard_pipe) return;
    guard_.assign(config_.guard_pipe.release());
    guard_.async_read_some(asio::buffer(guard_byte_), [this](const boost::system::error_code& error, std::size_t) {
        if (error != asio::error::operation_aborted) events_.push(GuardLost{});
    });
}

void Agent::arm_deadline() {
    if (!state_.deadline) {
        deadline_.cancel();
    } else if (deadline_.expiry() != *state_.deadline) {
        deadline_.expires_at(*state_.deadline);
        deadline_.async_wait([this](const boost::system::error_code& error) {
            if (!error) events_.push(Tick{});
        });
    }
}

void Agent::show_waiting(const coordinator::Waiting& waiting) {
    if (waiting.reason == last_waiting_) return;
    last_waiting_ = waiting.reason;
    spdlog::info("{}: waiting: {}", config_.node_name, waiting.reason);
}

// ---- what is done about it -------------------------------------------------------------------------------------------

void Agent::perform(const StartWorkers& action) {
    assignment_ = action.assignment;
    if (action.assignment.restart_count > 0 && number(action.assignment.node_rank) == 0) {
        spdlog::info("restart {}: {} workers on {} nodes", action.assignment.restart_count, action.assignment.world_size,
                     action.assignment.node_count);
    }
    workers_.reset();
    workers_.emplace(io_, WorkerProcesses::Callbacks{
        [this](LocalRank rank, const ExitStatus& status) { events_.push(WorkerExited{rank, status}); },
        [this] { events_.push(GroupGone{}); }});
    for (int i = 0; i < config_.slots; ++i) {
        const LocalRank rank{i};
        if (const Result<void> started = workers_->start(worker_spec(action.assignment, rank)); !started) {
            events_.push(SpawnFailed{rank, started.error()});
            break;
        }
    }
    workers_->all_started();
}

void Agent::perform(const SignalGroup& action) { workers_->signal_group(action.signal); }

void Agent::perform(const NotifyWorkers& action) { workers_->notify_workers(action.signal); }

void Agent::perform(const ReportFailure& action) {
    coordinator::FailureReport report;
    report.rank = rank_of(*assignment_, action.rank);
    report.local_rank = action.rank;
    report.node_rank = assignment_->node_rank;
    report.host = config_.node_name;
    report.status = action.status;
    report.message = action.why;
    if (action.why.empty()) {   // it did start
        report.pid = workers_->pid(action.rank);
        report.message = workers_->error_message(action.rank);
        report.last_lines = workers_->last_lines(action.rank);
    }
    const coordinator::AgentMessage message = coordinator::WorkerFailed{action.generation, std::move(report)};
    link_.send(message);
}

void Agent::perform(const Finish& action) {
    exit_code_ = action.exit_code;
    if (workers_ && !state_.gone) {
        spdlog::error("{}: {}: pids {}", config_.node_name, action.why, fmt::join(workers_->remaining(), ", "));
        workers_->abandon();
    } else if (!action.why.empty()) {
        spdlog::error("{}: {}", config_.node_name, action.why);
    }
    if (action.verdict && !config_.quiet_verdict) {
        const std::string program = std::filesystem::path(config_.command.at(0)).filename().string();
        const std::string text = format_verdict(*action.verdict, program);
        console_.write(Console::Stream::kErr, Console::kAgent, {text, true});
    }
}

// ---- what a worker gets ----------------------------------------------------------------------------------------------

WorkerSpec Agent::worker_spec(const Assignment& assignment, LocalRank rank) {
    WorkerSpec spec;
    spec.out = route(assignment, rank, Console::Stream::kOut);
    spec.err = route(assignment, rank, Console::Stream::kErr);
    spec.error_file = error_file(assignment, rank);
    const WorkerPlace place{rank, config_.slots, allowed_cpus(), config_.node_name, run_id_, config_.role,
                            spec.error_file ? spec.error_file->path() : ""};
    spec.argv = worker_command(config_.command, rank);
    spec.environment = to_strings(worker_environment(parse_environment(::environ), assignment, place));
    return spec;
}

Route Agent::route(const Assignment& assignment, LocalRank rank, Console::Stream stream) {
    const OutputConfig& output = config_.output;
    const bool is_err = stream == Console::Stream::kErr;
    Route route;
    route.stream = stream;
    route.source = number(rank);
    route.keep_tail = is_err;
    if (!output.redirect_to_files || output.tee) route.console = &console_;
    if (output.label || output.tee) route.label = fmt::format("[{}:{}] ", config_.node_name, number(rank_of(assignment, rank)));
    if (output.log_dir.empty()) return route;

    const std::string name = log_file_name(rank_of(assignment, rank), is_err ? "err" : "out");
    const std::filesystem::path path = log_folder(output.log_dir, run_id_, assignment.generation) / name;
    Result<UniqueFd> file = open_log_file(path);
    if (file) route.file = std::move(*file);
    else warn_once(fmt::format("{}; the job goes on without it", file.error().message));
    route.file_name = path.string();
    return route;
}

std::optional<ErrorFile> Agent::error_file(const Assignment& assignment, LocalRank rank) {
    Result<ErrorFile> file = ErrorFile::in_memory();
    if (!config_.output.log_dir.empty()) {
        const std::filesystem::path folder = log_folder(config_.output.log_dir, run_id_, assignment.generation);
        Result<ErrorFile> on_disk = ErrorFile::at((folder / log_file_name(rank_of(assignment, rank), "error.json")).string());
        if (on_disk) file = std::move(on_disk);   // else in memory: the log files warn about that folder
    }
    if (file) return std::move(*file);
    warn_once(file.error().message);
    return std::nullopt;
}

void Agent::warn_once(const std::string& warning) {
    if (warning == last_warning_) return;
    last_warning_ = warning;
    spdlog::warn("{}: {}", config_.node_name, warning);
}

}  // namespace

int run_agent(AgentConfig config) {
    ::signal(SIGPIPE, SIG_IGN);   // a reader of our output that has gone is no reason to end a job
    ::signal(SIGCHLD, SIG_DFL);   // inherited as ignored, it would lose exit codes
    adopt_strays();

    asio::io_context io(1);
    Agent agent(io, std::move(config));
    std::optional<int> exit_code;
    asio::co_spawn(io, agent.run(), [&](std::exception_ptr error, int code) {
        if (error) std::rethrow_exception(error);
        exit_code = code;
        io.stop();
    });
    io.run();
    return exit_code.value_or(exit_code::kInternal);
}

}  // namespace ddprun::agent
