#include "agent/workers/worker.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/workers/signs_of_failure.hpp"
#include "common/system/host_pid.hpp"
#include "common/system/process.hpp"
#include "common/system/process_state.hpp"
#include "common/text/number.hpp"
#include "common/text/utf8.hpp"

namespace ddprun::agent {
namespace {

constexpr std::size_t kMaxMessageBytes = 4096;  // of an error file's message

/// Returns both ends of a stream of a worker. A worker that writes to a file itself has that, and no pipe.
Result<Pipe> make_output_ends(Route& route) {
    if (route.terminal) return Pipe{std::move(route.terminal->read_end), std::move(route.terminal->write_end)};
    if (route.own_file) return Pipe{UniqueFd(), std::move(route.own_file)};
    Result<Pipe> pipe = make_pipe("for its output");
    if (!pipe) return start_error("cannot make a pipe for its output", pipe.error().code.value());
    return pipe;
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::start(boost::asio::io_context& io, WorkerSpec spec) {
    Result<Pipe> out = make_output_ends(spec.out);
    if (!out) return out.error();
    Result<Pipe> err = make_output_ends(spec.err);
    if (!err) return err.error();
    std::vector<int> inherited;
    if (spec.record) inherited.push_back(spec.record->descriptor());
    if (spec.secret) inherited.push_back(spec.secret.get());
    const ChildSpec child{std::move(spec.argv), std::move(spec.environment), out->write_end.get(), err->write_end.get(),
                          std::move(inherited), std::move(spec.cpus),        spec.group_fd,        spec.joins_group};
    Result<ChildProcess> process = ChildProcess::start(io, child);
    if (!process) return process.error();
    std::unique_ptr<Worker> worker(new Worker(std::move(*process), spec));
    if (out->read_end) worker->out_ = std::make_shared<WorkerStream>(io, std::move(out->read_end), std::move(spec.out));
    worker->err_ = std::make_shared<WorkerStream>(io, std::move(err->read_end), std::move(spec.err));
    for (const auto& stream : {worker->out_, worker->err_}) {
        if (!stream) continue;
        stream->follow_answers([pid = worker->pid_] { return terminal_read(pid); });
        stream->start();
    }
    return worker;
}

Worker::Worker(ChildProcess process, WorkerSpec& spec)
    : pid_(process.pid()),
      shown_pid_(host_pid(pid_)),
      error_file_(std::move(spec.error_file)),
      step_file_(std::move(spec.step_file)) {
    process_.emplace(std::move(process));
    if (spec.record) record_.emplace(std::move(*spec.record)).handed_over();
}

void Worker::look_at_step_file() {
    if (!step_file_ || !record_) return;
    if (const std::optional<std::uint64_t> step = step_file_->read()) record_->note_step(*step);
}

bool Worker::take_status() {
    status_ = process_->status();
    status_withheld_ = !status_;
    if (status_) ended_at_ = Clock::now();
    return status_.has_value();
}

void Worker::note_signal() {
    if (signalled_ || has_ended()) return;
    const pid_t trains = trainer();
    signalled_ = Signalled{Clock::now(), trains, host_pid(trains), std::nullopt};
    const ProcessState state = ddprun::process_state(signalled_->trainer);
    if (state != ProcessState::kEnded) signalled_->state = state;
}

void Worker::signal_group(int signal) {
    note_signal();
    process_->signal_group(signal);
    process_->signal_group(SIGCONT);
}

void Worker::send_to_group(int signal) const {
    if (process_) process_->signal_group(signal);
}

void Worker::notify(int signal) {
    if (process_ && !status_ && handles_signal(pid_, signal)) process_->signal(signal);
}

bool Worker::is_ending_by_itself() {
    if (has_ended()) return false;  // only the processes that it left behind are to be signalled
    if (record_ && has_left_all_groups(record_->view(kEvidenceOperations))) return true;
    return recently_failing_for() || (error_file_ && !error_file_->empty());
}

/// Returns how long ago the first sign of a failure was seen: signs that follow are its consequences. Peers of a
/// program that aborts a group, or leaves it by an exception, may end because of that before the program itself has
/// printed the cause.
std::optional<Duration> Worker::recently_failing_for() {
    err_->take_available();
    std::optional<Duration> first;
    if (const auto& traceback = err_->traceback_at()) first = Clock::now() - *traceback;
    if (first && *first > kRecentSign) first.reset();
    if (record_) {
        const auto failing = failing_for(record_->view(kEvidenceOperations));
        if (failing && *failing <= kRecentSign) first = std::max(first.value_or(Duration::zero()), *failing);
    }
    return first;
}

WorkerEvidence Worker::evidence() {
    WorkerEvidence evidence{shown_pid_, status_, oom_};
    evidence.failing_for = recently_failing_for();  // which has read the last bytes of stderr
    evidence.last_lines = err_->tail().lines();
    evidence.record = flight_record(kEvidenceOperations);
    const Result<std::string> text = error_text(kMaxErrorFileBytes);
    const Result<std::string> message = text ? parse_error_file(*text) : text;
    if (!message) {
        evidence.error_file_problem = message.error().message;
        return evidence;
    }
    evidence.error_message = printable(*message, kMaxMessageBytes);
    evidence.error_text = *text;
    return evidence;
}

Result<std::string> Worker::error_text(std::size_t max_bytes) const {
    return error_file_ ? error_file_->read(max_bytes) : std::string();
}

/// Returns the process that trains. The worker may be a script that starts it: then it is the writer of the flight
/// record, if that belongs to the worker's process group or descends from the worker.
pid_t Worker::trainer() const {
    const pid_t writer = record_ ? record_->writer() : 0;
    return writer > 0 && (::getpgid(writer) == pid_ || is_below(writer, pid_)) ? writer : pid_;
}

protocol::FlightRecord Worker::flight_record(std::size_t max_operations) const {
    protocol::FlightRecord view = record_ ? record_->view(max_operations) : protocol::FlightRecord();
    if (status_) end_device_call(view, Clock::now() - ended_at_);
    return view;
}

protocol::RankRecord Worker::rank_record(std::size_t max_operations) const {
    protocol::RankRecord shown;
    shown.view = flight_record(max_operations);
    const pid_t trains = status_ ? pid_ : trainer();
    shown.pid = status_ ? shown_pid_ : host_pid(trains);
    if (signalled_ && signalled_->state) {
        shown.process_before = signalled_->state;
        shown.process_before_ago = Clock::now() - signalled_->at;
        if (status_) shown.pid = signalled_->shown_trainer;
    }
    shown.ended = status_.has_value();
    if (shown.ended) shown.ended_ago = Clock::now() - ended_at_;
    shown.status = status_;
    shown.process = status_ ? ProcessState::kEnded : ddprun::process_state(trains);
    if (!shown.ended && trains == pid_ &&
        shown.process == ProcessState::kEnded) {  // just now: its status was not taken yet
        shown.ended = true;
        shown.ended_ago = std::chrono::nanoseconds(0);
    }
    const bool stops = shown.process == ProcessState::kStopped || shown.process_before == ProcessState::kStopped;
    if (stops) shown.view.device_call = {};  // its thread is stopped, too: that explains nothing
    return shown;
}

ProcessState Worker::process_state() const { return status_ ? ProcessState::kEnded : ddprun::process_state(trainer()); }

void Worker::reap() {
    if (process_) process_->reap();
    process_.reset();
}

void Worker::finish_output() {
    if (out_) out_->finish();
    err_->finish();
}

void Worker::fit_terminals() {
    const bool out = out_ && out_->fit_terminal();
    const bool err = err_->fit_terminal();
    // These terminals have no session, so the kernel signals no process.
    if (out || err) send_to_group(SIGWINCH);
}

void Worker::abandon() {
    if (process_) process_->abandon();
}

}  // namespace ddprun::agent
