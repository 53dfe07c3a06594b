#include "agent/agent.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
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
#include "agent/delayed_line.hpp"
#include "agent/environment.hpp"
#include "agent/event_queue.hpp"
#include "agent/output/console.hpp"
#include "agent/output/console_end.hpp"
#include "agent/output/log_sink.hpp"
#include "agent/output/log_writer.hpp"
#include "agent/output/text.hpp"
#include "agent/verdict_text.hpp"
#include "agent/worker_group.hpp"
#include "agent/worker_processes.hpp"
#include "agent/worker_recipe.hpp"
#include "common/signals.hpp"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;
using coordinator::Assignment;
using namespace std::chrono_literals;

/// How long a finished job waits for a slow file system to take the rest of its log files.
constexpr std::chrono::seconds kLogFlush{8};

/// A node counts as lost a second after its connection has ended; only then is it known that workers failed of that.
constexpr std::chrono::seconds kReasonIsSure{2};

/// Whether what a step says about `event` will be said again, with its outcome, when the stop that it begins is over.
bool told_at_the_end(const Event& event, const State& after) {
    return std::holds_alternative<WorkerExited>(event) || std::holds_alternative<SpawnFailed>(event) ||
           std::holds_alternative<AbortReceived>(event) || std::holds_alternative<DaemonLost>(event) ||
           (std::holds_alternative<StopSignal>(event) && !after.killed);
}

/// Every signal of `signals` becomes a `SignalEvent`, until the set is cleared.
template <typename SignalEvent>
void push_each(asio::signal_set& signals, EventQueue& events) {
    signals.async_wait([&](const boost::system::error_code& error, int signal) {
        if (error) return;
        events.push(SignalEvent{signal});
        push_each<SignalEvent>(signals, events);
    });
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

    void take_name(const coordinator::Welcome& welcome);
    void show_place(const Assignment& assignment);
    void show_waiting(const coordinator::Waiting& waiting);
    void show_verdict(const coordinator::Verdict& verdict);
    void leave_last_words(std::string text);
    /// In front of the agent's own lines: who speaks, when there are several who could.
    [[nodiscard]] std::string tag() const { return config_.max_nodes == 1 ? "" : config_.node_name + ": "; }

    asio::io_context& io_;
    AgentConfig config_;
    std::string run_id_;
    EventQueue events_;
    Console console_;
    ConsoleLog console_log_;
    LogWriter logs_;
    WorkerRecipe recipe_;
    DaemonLink link_;
    State state_;
    std::optional<Assignment> assignment_;    ///< of the latest group
    std::optional<WorkerProcesses> workers_;  ///< of the latest group
    asio::signal_set stop_signals_;
    asio::signal_set notify_signals_;
    asio::posix::stream_descriptor guard_;
    std::array<char, 1> guard_byte_{};
    asio::steady_timer deadline_;
    DelayedLine waiting_line_;
    DelayedLine stop_line_;
    std::string place_;  ///< as it was shown last
    int exit_code_ = exit_code::kInternal;
};

Agent::Agent(asio::io_context& io, AgentConfig config)
    : io_(io),
      config_(std::move(config)),
      run_id_(config_.run_id.value_or("none")),
      events_(io),
      console_(io, STDOUT_FILENO, STDERR_FILENO),
      console_log_(console_),
      logs_(io, [this](const std::string& problem) { spdlog::warn("{}: {}", config_.node_name, problem); }),
      recipe_(config_, console_, logs_),
      link_(io, config_.endpoint, join_of(config_), config_.connect_timeout,
            {[this](Event event) { events_.push(std::move(event)); },
             [this](const coordinator::Welcome& welcome) { take_name(welcome); },
             [this](const coordinator::Waiting& waiting) { show_waiting(waiting); }}),
      stop_signals_(io),
      notify_signals_(io, SIGUSR1, SIGUSR2),
      guard_(io),
      deadline_(io),
      waiting_line_(io, std::chrono::seconds(config_.emulated ? 5 : 1)),  // emulated nodes start together
      stop_line_(io, kReasonIsSure) {
    state_.grace = config_.grace;
    state_.slots = config_.slots;
}

asio::awaitable<int> Agent::run() {
    listen_to_signals();
    watch_guard();
    link_.start();
    while (state_.phase != Phase::kDone) {
        const Event event = co_await events_.next();  // the only place that waits
        Step taken = step(std::move(state_), event, Clock::now());
        state_ = std::move(taken.next);
        if (!taken.reason.empty()) {
            const std::string line = tag() + taken.reason;
            if (std::holds_alternative<StopSignal>(event)) stop_line_.drop();  // another matter than what was said
            if (told_at_the_end(event, state_))
                stop_line_.set(line);
            else
                spdlog::info("{}", line);
        }
        for (const Action& action : taken.actions) {  // the only place that acts
            std::visit([this](const auto& what) { perform(what); }, action);
        }
        arm_deadline();
    }
    co_await link_.close();
    stop_signals_.clear();  // nothing is left to stop but ourselves, should the console take nothing more
    logs_.finish(kLogFlush);
    drain_at_end(console_, exit_code_, tag());
    co_return exit_code_;
}

// ---- what happens ----

void Agent::listen_to_signals() {
    for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) {
        const bool nohup = signal == SIGHUP && is_ignored(SIGHUP);
        if (!nohup) stop_signals_.add(signal);
    }
    push_each<StopSignal>(stop_signals_, events_);
    push_each<NotifySignal>(notify_signals_, events_);
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

void Agent::take_name(const coordinator::Welcome& welcome) {
    run_id_ = welcome.run_id;
    if (!welcome.node_name.empty()) config_.node_name = welcome.node_name;
}

/// In a job of several terminals each is told which one it is, and told again when that has changed.
void Agent::show_place(const Assignment& assignment) {
    if (config_.max_nodes == 1 || config_.emulated) return;
    const int last = assignment.rank_base + config_.slots - 1;
    std::string place = fmt::format("this is node {} of {} ({}): ", number(assignment.node_rank), assignment.node_count,
                                    config_.node_name);
    place += config_.slots == 1 ? fmt::format("rank {}", last) : fmt::format("ranks {}-{}", assignment.rank_base, last);
    place += fmt::format(" of {}", assignment.world_size);
    if (place == place_) return;
    spdlog::info("{}, generation {}", place, number(assignment.generation));
    place_ = std::move(place);
}

void Agent::show_waiting(const coordinator::Waiting& waiting) {
    waiting_line_.set(fmt::format("{}waiting at {}: {}", tag(), to_string(config_.endpoint), waiting.reason));
}

// ---- what is done about it ----

void Agent::perform(const StartWorkers& action) {
    assignment_ = action.assignment;
    waiting_line_.drop();
    if (config_.emulated && number(action.assignment.node_rank) != 0) stop_line_.drop();  // one of them says it
    stop_line_.flush();
    show_place(action.assignment);
    if (action.assignment.restart_count > 0 && number(action.assignment.node_rank) == 0) {
        const int workers = action.assignment.world_size;
        const int nodes = action.assignment.node_count;
        spdlog::info("restart {}: {} worker{} on {} node{}", action.assignment.restart_count, workers,
                     workers == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s");
    }
    workers_.reset();
    workers_.emplace(io_, WorkerProcesses::Callbacks{[this](LocalRank rank, const ExitStatus& status, bool unasked) {
                                                         events_.push(WorkerExited{rank, status, unasked});
                                                     },
                                                     [this] { events_.push(GroupGone{}); }});
    for (int i = 0; i < config_.slots; ++i) {
        const LocalRank rank{i};
        if (const Result<void> started = workers_->start(recipe_.make(action.assignment, run_id_, rank)); !started) {
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
    if (action.why.empty()) {  // it did start
        report.pid = workers_->pid(action.rank);
        report.message = workers_->error_message(action.rank);
        report.last_lines = workers_->last_lines(action.rank);
        if (const auto since = workers_->failing_since(action.rank)) {
            report.failing_for = std::max(1ms, std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - *since));
        }
        report.log_file = recipe_.log_file(*assignment_, run_id_, action.rank);
    }
    const coordinator::AgentMessage message = coordinator::WorkerFailed{action.generation, std::move(report)};
    link_.send(message);
}

/// One box for the job, not one per node: the first node prints it, and the one that it is about. The others leave it
/// at a line, and so do all when somebody ended the job on purpose.
void Agent::show_verdict(const coordinator::Verdict& verdict) {
    const std::string program = config_.program_name.empty()
                                    ? std::filesystem::path(config_.command.at(0)).filename().string()
                                    : config_.program_name;
    const std::string box = format_verdict(verdict, program);
    const bool stopped = verdict.outcome == coordinator::Outcome::kStopped;
    const std::string reason = printable(verdict.reason, verdict.reason.size());
    if (config_.emulated) return leave_last_words(stopped ? fmt::format("[ddprun] {}\n", reason) : box);
    const bool first = !assignment_ || number(assignment_->node_rank) == 0;
    if (stopped) {
        spdlog::error("{}{}", tag(), reason);
    } else if (first || (verdict.culprit && verdict.culprit->host == config_.node_name)) {
        console_.write(Console::Stream::kErr, Console::kAgent, {box, true});
    } else if (verdict.exit_code != 0) {
        spdlog::error("{}the job failed: {}", tag(), reason);
    }
}

void Agent::leave_last_words(std::string text) {
    if (text.empty() || !config_.last_words) return;
    std::erase(text, '\0');
    text.push_back('\0');
    // To a file in memory that is open for appending: in one piece, beside those of other nodes. Without it the
    // launcher has nothing but the exit code to tell.
    [[maybe_unused]] const ssize_t ignored = ::write(config_.last_words.get(), text.data(), text.size());
}

void Agent::perform(const Finish& action) {
    exit_code_ = action.exit_code;
    waiting_line_.drop();
    stop_line_.drop();
    const bool interrupted = state_.stop_signal && action.exit_code == exit_code::kSignalBase + *state_.stop_signal;
    if (workers_ && !state_.gone) {
        spdlog::error("{}{}: pids {}", tag(), action.why, fmt::join(workers_->remaining(), ", "));
        workers_->abandon();
    } else if (!action.why.empty() && !(config_.emulated && interrupted)) {
        spdlog::error("{}{}", tag(), action.why);
    }
    if (action.verdict) show_verdict(*action.verdict);
}

}  // namespace

int run_agent(AgentConfig config) {
    ignore_failed_writes();
    ::signal(SIGCHLD, SIG_DFL);  // inherited as ignored, it would lose exit codes
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
