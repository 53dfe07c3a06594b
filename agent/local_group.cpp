#include "agent/local_group.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "agent/group/worker_group.hpp"
#include "agent/guard/describe_process.hpp"
#include "agent/output/log_files.hpp"
#include "agent/workers/environment.hpp"
#include "agent/workers/older_processes.hpp"
#include "common/text/number.hpp"

namespace ddprun::agent {

using namespace std::chrono_literals;

namespace {

/// The longest time for which signals, messages and heartbeats wait while workers are started. Starting hundreds of
/// workers takes longer than the daemon waits for a heartbeat.
constexpr std::chrono::milliseconds kStartSlice{100};

/// Adds the evidence about a worker that was started and has ended. `report` names the worker already.
void add_evidence(protocol::FailureReport& report, WorkerEvidence evidence) {
    if (!evidence.error_file_problem.empty())
        spdlog::warn("cannot read the exception of rank {} on {}: {}. Look at the rank's stderr", number(report.rank),
                     report.host, evidence.error_file_problem);
    report.pid = evidence.pid;
    report.oom = evidence.oom;
    report.message = std::move(evidence.error_message);
    if (report.message == participle(report.status)) report.message.clear();  // as of a ddprun below this one
    report.last_lines = std::move(evidence.last_lines);
    report.activity = describe_activity(evidence.record);
    report.peer_failed = failed_after_peer(evidence.record);
    if (evidence.failing_for)
        report.failing_for =
            std::max(1ms, std::chrono::duration_cast<std::chrono::milliseconds>(*evidence.failing_for));
}

/// Warns about processes that this user may not signal: workers that have become another one by a set-id program.
void warn_of_foreign_processes(std::vector<pid_t> pids) {
    std::erase_if(pids, [](pid_t pid) { return ::kill(pid, 0) == 0 || errno != EPERM; });
    if (pids.empty()) return;
    spdlog::warn("cannot kill {} {}, which became another user. End {} as that user: ddprun waits for at most {}",
                 inflect(pids.size(), "process", "processes"), fmt::join(pids, ", "),
                 inflect(pids.size(), "it", "them"), seconds_text(worker_group::kUnkillableAfter));
}

}  // namespace

LocalGroup::LocalGroup(boost::asio::io_context& io, const AgentConfig& config, Console& console, LogWriter& logs,
                       EventQueue& events, std::function<void(const std::string&)> warn)
    : io_(io),
      config_(config),
      logs_(logs),
      events_(events),
      warn_(std::move(warn)),
      spec_builder_(config, console, logs, warn_),
      fence_(config.control_group.empty() ? ControlGroup() : ControlGroup(config.control_group.c_str())),
      run_id_(config.run_id.value_or("none")) {
    if (config.joins_control_group) fence_.require_joining();
}

std::string LocalGroup::log_folder() const {
    if (config_.output.log_dir.empty()) return "";
    return full_path(agent::log_folder(config_.output.log_dir, run_id_, Generation{}).parent_path()).string();
}

void LocalGroup::start(const protocol::Assignment& assignment) {
    if (!assignment_ && number(assignment.generation) > 1) end_older_processes(assignment.generation);
    set_frozen(false);  // a worker that is born in a frozen group would stop before its exec, and this process with it
    assignment_ = assignment;
    error_texts_.clear();
    preemption_ = {};
    processes_.reset();  // before the next one is made: there may be one at a time
    processes_.emplace(io_,
                       WorkerProcesses::Callbacks{
                           [this](LocalRank rank, const ExitStatus& status, bool by_itself) {
                               keep_error_file(rank);
                               events_.push(WorkerExited{rank, status, by_itself, processes_->steps().latest});
                           },
                           [this] { events_.push(GroupReaped{processes_->steps()}); },
                       },
                       OomWatch(), fence_.is_open() ? &fence_ : nullptr);
    spec_builder_.prepare_console(assignment);
    start_more(LocalRank{0});
}

/// Ends the processes that an agent which was killed has left here: this node comes back to a job that went on.
void LocalGroup::end_older_processes(Generation generation) const {
    const OlderProcesses found = agent::end_older_processes(config_.session, generation);
    if (found.killed > 0)
        warn_(fmt::format("killed {} that an earlier ddprun of this job had left here",
                          counted(found.killed, "process", "processes")));
    if (!found.unreadable.empty())
        warn_(fmt::format(
            "the environment of {} {} was not read in time: at least one is stuck in the kernel. If an earlier ddprun "
            "of this job has left {} here, free the GPUs and ports that {} before the job needs them",
            inflect(found.unreadable.size(), "process", "processes"), fmt::join(found.unreadable, ", "),
            inflect(found.unreadable.size(), "it", "them"), inflect(found.unreadable.size(), "it uses", "they use")));
}

/// Has the error file of a worker that has ended copied beside its log files, if the worker has written one.
void LocalGroup::keep_error_file(LocalRank rank) {
    if (config_.output.log_dir.empty()) return;
    const Rank job_rank = rank_of(*assignment_, rank);
    const Result<std::string> text = processes_->error_text(rank, kMaxKeptErrorBytes);
    if (!text) {
        warn_(fmt::format("cannot keep the error file of rank {}: {}", number(job_rank), text.error().message));
    } else if (!text->empty()) {
        const std::string path = (agent::log_folder(config_.output.log_dir, run_id_, assignment_->generation) /
                                  log_file_name(job_rank, "error.json"))
                                     .string();
        logs_.replace(path, fmt::format("the error file {} of rank {}", path, number(job_rank)), *text);
    }
}

/// Starts a worker, unless its fence is lost: it would run outside, or fail without a reason that names the group.
Result<void> LocalGroup::start_worker(LocalRank rank) {
    if (!config_.control_group.empty() && (!fence_.is_open() || ::access(config_.control_group.c_str(), F_OK) != 0)) {
        return Error{Errc::kSystem,
                     fmt::format("the control group {} of this node's workers was removed, or cannot be opened. If "
                                 "another program removes control groups, start the job with --fence guard",
                                 config_.control_group)};
    }
    WorkerSpec spec = spec_builder_.make(*assignment_, run_id_, rank);
    if (spec.record) {
        spec.record->set(preemption_);
        spec.record->set_steps_before(assignment_->steps_before);
    }
    return processes_->start(std::move(spec));
}

std::uint64_t LocalGroup::give_notice(const protocol::Preempt& notice) {
    spec_builder_.write_notice(notice);
    preemption_.noticed = true;
    processes_->set_preemption(preemption_);  // before the calls are read: see flight_record::Preemption
    return processes_->max_stop_calls();
}

void LocalGroup::set_stop(std::uint64_t call) {
    preemption_.stop_at = call;
    processes_->set_preemption(preemption_);
}

void LocalGroup::start_more(LocalRank next) {
    const TimePoint pause_at = Clock::now() + kStartSlice;
    for (const int slots = config_.slots(); number(next) < slots; next = LocalRank{number(next) + 1}) {
        if (Clock::now() >= pause_at) return events_.push_later(StartPaused{next});
        const Result<void> started = start_worker(next);
        if (!started) {
            spec_builder_.close_console_from(next);
            events_.push(SpawnFailed{next, started.error()});
            break;
        }
    }
    processes_->all_started();
}

void LocalGroup::signal(int signal) {
    if (processes_->signal_group(signal)) events_.push(WorkersSpared{});
    if (signal == SIGKILL) warn_of_foreign_processes(processes_->remaining());  // not before: it may take long
}

protocol::FailureReport LocalGroup::failure_report(const ReportFailure& failure) {
    protocol::FailureReport report;
    report.rank = rank_of(*assignment_, failure.rank);
    report.local_rank = failure.rank;
    report.node_rank = assignment_->node_rank;
    report.host = config_.node_name;
    report.status = failure.status;
    report.message = failure.why;
    if (config_.programs.size() > 1)
        report.program = name_of(config_.programs[program_rank(config_.programs, failure.rank).program]);
    if (!failure.why.empty()) return report;  // it was not started
    WorkerEvidence evidence = processes_->evidence(failure.rank);
    if (!evidence.error_text.empty()) error_texts_[evidence.pid] = std::move(evidence.error_text);
    add_evidence(report, std::move(evidence));
    report.log_file = spec_builder_.log_file(*assignment_, run_id_, failure.rank);
    return report;
}

std::string LocalGroup::error_text(const protocol::FailureReport& failure) const {
    const auto found = error_texts_.find(failure.pid);
    return found != error_texts_.end() ? found->second : "";
}

std::optional<RecordedWorkers> LocalGroup::recorded() const {
    if (!assignment_ || !processes_) return std::nullopt;
    return RecordedWorkers{*assignment_, *processes_};
}

std::vector<std::string> LocalGroup::abandon() {
    std::vector<std::string> left;
    for (const pid_t pid : processes_->remaining()) left.push_back(describe_process(pid));
    processes_->abandon();
    return left;
}

}  // namespace ddprun::agent
