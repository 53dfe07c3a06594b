#include "agent/agent.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <optional>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/announcer.hpp"
#include "agent/board/board_desk.hpp"
#include "agent/daemon_link.hpp"
#include "agent/environment.hpp"
#include "agent/event_queue.hpp"
#include "agent/last_signals.hpp"
#include "agent/output/console.hpp"
#include "agent/output/console_end.hpp"
#include "agent/output/log_sink.hpp"
#include "agent/output/log_writer.hpp"
#include "agent/signal_source.hpp"
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
/// Of a worker's board, when it has failed.
constexpr std::size_t kOperationsShown = 16;
/// How long signals, messages and heartbeats wait at most while workers are started.
constexpr std::chrono::milliseconds kStartSlice{100};

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
    join.boards = true;
    return join;
}

/// The one loop around the decisions of worker_group.hpp.
class Agent {
public:
    Agent(asio::io_context& io, AgentConfig config);

    /// Waits for what happens, decides, acts; until the end. Returns the exit code.
    asio::awaitable<int> run();

private:
    void watch_guard();
    void arm_deadline();
    void take_name(const coordinator::Welcome& welcome);

    void start_some();
    [[nodiscard]] BoardsHere boards_here() const;

    // The actions.
    void perform(const StartWorkers& action);
    void perform(const SignalGroup& action) { workers_->signal_group(action.signal); }
    void perform(const NotifyWorkers& action) { workers_->notify_workers(action.signal); }
    void perform(const ReportFailure& action);
    void perform(const SendMessage& action) { link_.send(action.message); }
    void perform(const Finish& action);

    asio::io_context& io_;
    AgentConfig config_;
    std::string run_id_;
    EventQueue events_;
    Console console_;
    ConsoleLog console_log_;
    Announcer announcer_;
    LogWriter logs_;
    WorkerRecipe recipe_;
    DaemonLink link_;
    State state_;
    std::optional<Assignment> assignment_;    ///< of the latest group
    std::optional<WorkerProcesses> workers_;  ///< of the latest group
    LocalRank next_to_start_{};
    SignalSource signals_;
    asio::posix::stream_descriptor guard_;
    std::array<char, 1> guard_byte_{};
    asio::steady_timer deadline_;
    BoardDesk boards_;
    int exit_code_ = exit_code::kInternal;
};

Agent::Agent(asio::io_context& io, AgentConfig config)
    : io_(io),
      config_(std::move(config)),
      run_id_(config_.run_id.value_or("none")),
      events_(io),
      console_(io, STDOUT_FILENO, STDERR_FILENO),
      console_log_(console_),
      announcer_(io, config_, console_),
      logs_(io, [this](const std::string& problem) { spdlog::warn("{}: {}", config_.node_name, problem); }),
      recipe_(config_, console_, logs_),
      link_(io, config_.endpoint, join_of(config_), config_.connect_timeout,
            {[this](Event event) { events_.push(std::move(event)); },
             [this](const coordinator::Welcome& welcome) { take_name(welcome); },
             [this](const coordinator::Waiting& waiting) { announcer_.tell_wait(waiting); },
             [this](const coordinator::ShowBoards& wish) { boards_.show(wish); },
             [this](const coordinator::Notice& notice) {
                 if (notice.generation == state_.generation) announcer_.tell_job_notice(notice.text);
             },
             [this](const std::string& notice) { spdlog::warn("{}{}", announcer_.tag(), notice); }}),
      signals_(io, events_, config_.drain_signals),
      guard_(io),
      deadline_(io),
      boards_(
          io, config_.stall_warning, [this] { return boards_here(); },
          [this](const coordinator::AgentMessage& message) { return link_.tell(message); }) {
    state_.grace = config_.grace;
    state_.slots = config_.slots;
}

asio::awaitable<int> Agent::run() {
    watch_guard();
    boards_.start();
    link_.start();
    while (state_.phase != Phase::kDone) {
        const Event event = co_await events_.next();  // the only place that waits
        Step taken = step(std::move(state_), event, Clock::now());
        state_ = std::move(taken.next);
        announcer_.tell_reason(event, state_, taken.reason);
        for (const Action& action : taken.actions) {  // the only place that acts
            std::visit([this](const auto& what) { perform(what); }, action);
        }
        arm_deadline();
    }
    boards_.stop();
    co_await link_.close();
    signals_.close();
    logs_.finish(kLogFlush);
    console_.drain(0ms);
    end_on_stop_signal(exit_code_);  // nothing is left to stop but ourselves, should the console take nothing more
    drain_at_end(console_, exit_code_, announcer_.tag());
    co_return exit_code_;
}

// ---- what happens ----

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

// ---- what is done about it ----

void Agent::perform(const StartWorkers& action) {
    assignment_ = action.assignment;
    announcer_.tell_start(action.assignment);
    workers_.reset();
    boards_.reset();
    workers_.emplace(io_, WorkerProcesses::Callbacks{[this](LocalRank rank, const ExitStatus& status, bool unasked) {
                                                         // It may have caught the error of a deadline; of a failure
                                                         // more is told (ReportFailure).
                                                         if (status.success()) boards_.look_at_end_of(rank);
                                                         events_.push(WorkerExited{rank, status, unasked});
                                                     },
                                                     [this] { events_.push(GroupGone{}); }});
    next_to_start_ = LocalRank{0};
    start_some();
}

/// Starts workers for as long as everything else can wait, then goes on behind what has happened meanwhile: hundreds of
/// them take longer than the daemon waits for a sign of life.
void Agent::start_some() {
    const TimePoint pause_at = Clock::now() + kStartSlice;
    for (; number(next_to_start_) < config_.slots; next_to_start_ = LocalRank{number(next_to_start_) + 1}) {
        if (Clock::now() >= pause_at) return asio::post(io_, [this] { start_some(); });
        const bool wanted = state_.phase == Phase::kRunning;
        const Result<void> started = wanted ? workers_->start(recipe_.make(*assignment_, run_id_, next_to_start_))
                                            : Error{Errc::kClosed, "the group is being stopped"};
        if (!started) {
            events_.push(SpawnFailed{next_to_start_, started.error()});
            break;
        }
    }
    workers_->all_started();
}

void Agent::perform(const ReportFailure& action) {
    coordinator::FailureReport report;
    report.rank = rank_of(*assignment_, action.rank);
    report.local_rank = action.rank;
    report.node_rank = assignment_->node_rank;
    report.host = config_.node_name;
    report.status = action.status;
    report.message = action.why;
    if (action.why.empty()) {  // it did start
        boards_.look_at_end_of(action.rank);
        report.pid = workers_->pid(action.rank);
        report.oom = workers_->oom(action.rank);
        report.message = workers_->error_message(action.rank);
        report.last_lines = workers_->last_lines(action.rank);
        report.activity = describe_activity(workers_->board(action.rank, kOperationsShown));
        report.log_file = recipe_.log_file(*assignment_, run_id_, action.rank);
        if (const auto since = workers_->failing_since(action.rank)) {
            report.failing_for =
                std::max(1ms, std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - *since));
        }
    }
    const coordinator::AgentMessage message = coordinator::WorkerFailed{action.generation, std::move(report)};
    link_.send(message);
}

/// Asked for every second, and whenever somebody wants to know.
BoardsHere Agent::boards_here() const {
    if (!assignment_ || !workers_) return {};
    const bool running = state_.phase == Phase::kRunning;
    return {&*assignment_, &*workers_, running ? state_.running : std::set<LocalRank>(), config_.node_name,
            config_.slots};
}

void Agent::perform(const Finish& action) {
    exit_code_ = action.exit_code;
    std::vector<pid_t> left;
    if (workers_ && !state_.gone) {
        left = workers_->remaining();
        workers_->abandon();
    }
    announcer_.tell_end(action, state_, left);
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
