#include "agent/agent.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <csignal>
#include <optional>
#include <utility>

#include "agent/daemon_link.hpp"
#include "agent/event_log.hpp"
#include "agent/event_queue.hpp"
#include "agent/event_sources.hpp"
#include "agent/group/worker_group.hpp"
#include "agent/job_error_file.hpp"
#include "agent/job_history.hpp"
#include "agent/job_report.hpp"
#include "agent/local_group.hpp"
#include "agent/output/console.hpp"
#include "agent/output/log_sink.hpp"
#include "agent/output/log_writer.hpp"
#include "agent/output/result_file.hpp"
#include "agent/recorder_service.hpp"
#include "agent/signal_source.hpp"
#include "agent/status_reporter.hpp"
#include "agent/workers/strays.hpp"
#include "common/system/host_pid.hpp"
#include "common/system/signals.hpp"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

protocol::Join join_of(const AgentConfig& config) {
    protocol::Join join;
    join.node = random_id();
    join.host = config.node_name;
    join.pid = host_pid(::getpid());
    join.programs.clear();
    for (const WorkerProgram& program : config.programs)
        join.programs.push_back({program.role, program.slots, program.max_restarts});
    join.min_nodes = config.min_nodes;
    join.max_nodes = config.max_nodes;
    join.scale_up = config.scale_up;
    join.stop_grace = config.grace;
    join.launch = config.launch;
    join.spare = config.spare;
    join.run_id = config.run_id;
    join.node_rank = config.node_rank;
    join.records = true;
    return join;
}

/// Agent: runs the loop around the decisions of worker_group.hpp: takes the next event, lets step() decide, performs
/// the actions. Owns the parts that push events and those that perform() uses. Used on the main thread.
///
/// Between two events a part acts by itself only to continue what an action began: DaemonLink connects again, repeats
/// its reports and sends heartbeats; WorkerProcesses reaps, and signals strays that appear after SignalGroup; the
/// status reporter prints a delayed line; workers' output passes to the console and the log files.
class Agent {
public:
    Agent(asio::io_context& io, AgentConfig config);

    /// Runs until the agent ends. Returns the exit code.
    asio::awaitable<int> run();

private:
    void handle(const Event& event);
    asio::awaitable<void> shut_down();

    void perform(const StartWorkers& action);
    void perform(const StartMoreWorkers& action);
    void perform(const EndStart&) { group_.end_start(); }
    void perform(const SignalGroup& action) { group_.signal(action.signal); }
    void perform(const SignalSpared&) { group_.signal_spared(); }
    void perform(const NotifyWorkers& action) { group_.notify_workers(action.signal); }
    void perform(const GiveNotice& action);
    void perform(const SetStop& action) { group_.set_stop(action.call); }
    void perform(const SuspendGroup&) { group_.suspend(); }
    void perform(const ContinueGroup&) { group_.resume(); }
    void perform(const FreezeGroup&) { group_.set_frozen(true); }
    void perform(const ThawGroup&) { group_.set_frozen(false); }
    void perform(const ForwardSignal& action);
    void perform(const DropConnection&) { link_.drop(); }
    void perform(const SendMessage& action) { link_.send(action.message); }
    void perform(const ReportFailure& action);
    void perform(const ReportTimeouts& action);
    void perform(const CheckForStalls& action);
    void perform(const SendRecord& action);
    void perform(const AdoptNames& action);
    void perform(const PrintWait& action) { status_reporter_.report_wait(action.reason, action.needs_nodes); }
    void perform(const PrintStopWait& action) { status_reporter_.report_stop_wait(action.text); }
    void perform(const PrintDetail& action) { status_reporter_.report_detail(action.text); }
    void perform(const PrintNotice& action) { status_reporter_.report_job_notice(action.text); }
    void perform(const PrintPreemption& action) { status_reporter_.report_preemption(action.text); }
    void perform(const PrintConnection& action) { status_reporter_.report_problem(action.text); }
    void perform(const PrintLogFileProblem& action) { status_reporter_.report_problem(action.text); }
    void perform(const Finish& action);
    void note_start();
    void write_results(const Finish& finish, const JobReport& report);

    AgentConfig config_;
    EventQueue events_;
    Console console_;
    ConsoleLog console_log_;
    StatusReporter status_reporter_;
    LogWriter logs_;
    LogWriter event_writer_;  ///< its own thread: the files may be on different file systems
    ResultWrites results_;
    JobHistory history_;
    EventLog event_log_;
    DaemonLink link_;
    RecorderService records_;
    LocalGroup group_;
    EventSources sources_;
    worker_group::State state_;
    TimePoint now_;  ///< of the event that is being handled
    int exit_code_ = exit_code::kInternal;
};

Agent::Agent(asio::io_context& io, AgentConfig config)
    : config_(std::move(config)),
      events_(io),
      console_(io, STDOUT_FILENO, STDERR_FILENO, SharedLines(config_.open_lines.get(), config_.console_writer)),
      console_log_(console_, config_.log_start),
      status_reporter_(io, config_, console_),
      logs_(io, [this](const std::string& problem) { events_.push(LogFileProblem{problem}); }),
      event_writer_(io, [this](const std::string& problem) { events_.push(LogFileProblem{problem}); }),
      history_(config_.began),
      event_log_(config_.events_file ? event_writer_.take(std::move(config_.events_file),
                                                          fmt::format("the events {} (--events)", config_.events))
                                     : LogFile(),
                 config_, history_, config_.began),
      link_(io, config_, join_of(config_), events_),
      records_(config_, [this](const protocol::AgentMessage& message) { return link_.try_send(message); }),
      group_(io, config_, console_, logs_, events_,
             [this](const std::string& problem) { status_reporter_.report_problem(problem); }),
      sources_(io, events_, config_) {
    state_.grace = config_.grace;
    state_.slots = config_.slots();
    state_.handled_signals = config_.handled_signals;
}

asio::awaitable<int> Agent::run() {
    sources_.start(records_.check_interval());
    link_.start();
    while (state_.phase != worker_group::Phase::kDone) {
        const Event event = co_await events_.next();  // the only place that waits
        handle(event);
    }
    co_await shut_down();
    co_return exit_code_;
}

/// Performs what step() decides about `event`. The reason is logged first: the log shows a cause before its effects.
void Agent::handle(const Event& event) {
    now_ = event.now;
    worker_group::Step taken = worker_group::step(std::move(state_), event);
    state_ = std::move(taken.next);
    status_reporter_.report_reason(taken);
    history_.note(event);
    event_log_.record(event, state_);
    for (const Action& action : taken.actions) {  // the only place where decisions are performed
        if (std::holds_alternative<Finish>(action)) history_.note_steps(group_.steps());
        history_.note(action, now_);
        event_log_.record(action, state_, taken.reason, now_);
        std::visit([this](const auto& what) { perform(what); }, action);
    }
    sources_.arm_deadline(worker_group::next_deadline(state_));
}

/// Closes everything that the agent has open, in the order in which the parts depend on each other.
asio::awaitable<void> Agent::shut_down() {
    sources_.stop_timers();
    co_await link_.close();
    sources_.close_signals();
    event_log_.close();
    console_.drain(0ms);                   // users see the outcome before slow file systems are waited for
    const TimePoint since = Clock::now();  // one for all files: the time must not add up
    logs_.finish(kFileSystemTimeout, since);
    event_writer_.finish(kFileSystemTimeout, since);
    for (const std::string& problem : results_.finish(since + kFileSystemTimeout))
        status_reporter_.report_problem(problem);
    while (const auto event = events_.try_next()) handle(*event);  // problems with log files; the others are ignored
    console_.drain(0ms);
    end_on_stop_signal(exit_code_);  // only output is left: should the console take no more, a signal ends this process
    drain_at_end(console_, exit_code_, status_reporter_.tag());
}

void Agent::perform(const StartWorkers& action) {
    status_reporter_.report_start(action.assignment);
    status_reporter_.report_log_folder(group_.log_folder());
    records_.reset();
    link_.forget_reports_before(action.assignment.generation);
    group_.start(action.assignment);
    note_start();
}

void Agent::perform(const StartMoreWorkers& action) {
    group_.start_more(action.next);
    note_start();
}

/// Notes that all workers of the group run, unless its start goes on or has failed.
void Agent::note_start() {
    if (!group_.is_started()) return;
    const TimePoint now = Clock::now();
    history_.note_started(now);
    event_log_.record_start(group_.pids(), now);
}

void Agent::perform(const ForwardSignal& action) {
    const protocol::AgentMessage message =
        protocol::Notify{.generation = action.generation, .signal = action.signal, .known = action.known};
    if (!link_.try_send(message) && !action.known) status_reporter_.report_lost_notification(action.signal);
}

void Agent::perform(const GiveNotice& action) {
    const std::uint64_t calls = group_.give_notice(action.notice);
    link_.send(protocol::StepsTaken{action.notice.generation, calls});
}

void Agent::perform(const ReportFailure& action) {
    if (action.why.empty()) perform(ReportTimeouts{action.rank});
    const protocol::WorkerFailed message{action.generation, group_.failure_report(action)};
    if (message.failure.failing_for > 0ms) history_.note_failure(message.failure.failing_for);
    link_.send(message);
}

void Agent::perform(const ReportTimeouts& action) {
    if (const auto workers = group_.recorded()) records_.report_timeouts(*workers, action.rank);
}

void Agent::perform(const CheckForStalls& action) {
    if (const auto workers = group_.recorded()) records_.check_for_stalls(*workers, action.running, now_);
}

void Agent::perform(const SendRecord& action) {
    if (const auto workers = group_.recorded())
        records_.send_record(*workers, action.request, action.rank, action.last, now_);
    if (!action.last) events_.push_later(RecordSent{action.request, action.rank});
}

void Agent::perform(const AdoptNames& action) {
    group_.set_run_id(action.run_id);
    if (!action.node_name.empty()) config_.node_name = action.node_name;
    config_.session = action.session;
    config_.worker_key = action.worker_key;
}

void Agent::perform(const Finish& action) {
    exit_code_ = action.exit_code;
    const std::vector<std::string> left = action.processes_left ? group_.abandon() : std::vector<std::string>();
    Finish end = action;
    if (end.verdict) status_reporter_.add_hint(*end.verdict);
    JobReport report = report_of(end, config_, history_);
    if (end.verdict && end.verdict->culprit && end.verdict->culprit->host == config_.node_name)
        report.error_text = group_.error_text(*end.verdict->culprit);
    status_reporter_.report_end(end, left, report);
    write_results(end, report);
}

/// Writes the error file and the report of this ddprun. The launcher of emulated nodes writes their report; the
/// culprit's node writes that launcher's error file.
void Agent::write_results(const Finish& finish, const JobReport& report) {
    if (!config_.emulated)
        results_.start(report_file(config_.report), report_text(to_json(report)), Existing::kReplace);
    if (!finish.verdict || !finish.verdict->culprit || finish.exit_code == exit_code::kSuccess) return;
    const protocol::FailureReport& culprit = *finish.verdict->culprit;
    const bool is_here = culprit.host == config_.node_name;
    if (config_.emulated && !is_here) return;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    results_.start(job_error_file(config_.error_file),
                   job_error_text(culprit, report.error_text, std::chrono::duration_cast<std::chrono::seconds>(now)),
                   is_here ? Existing::kReplace : Existing::kKeep);
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
