#include "worker_lib/src/nccl/device_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "common/exit_codes.hpp"
#include "common/text/number.hpp"
#include "worker_lib/src/util/error.hpp"
#include "worker_lib/src/util/signal_masked_thread.hpp"

namespace ddp::detail {
namespace {

using ddprun::Clock;
using ddprun::TimePoint;
using State = NcclGroup::State;

Failure failure_of_work(const NcclGroup& group, const NcclWork& work, ErrorCode code, std::string_view text) {
    return {.code = code,
            .operation = work.text(),
            .cause = fmt::format("{}: {}", group.own_rank, text),
            .names_group = true};
}

/// Ends an operation and wakes its waiters here, and has its callbacks run on their own thread.
void end_work(NcclGroup& group, const std::shared_ptr<NcclWork>& work, std::exception_ptr error) {
    auto callbacks = work->finish(std::move(error));
    if (!callbacks.empty()) group.callbacks->add({work, std::move(callbacks)});
}

std::string_view nccl_function(const NcclWork& work) {
    const auto* const operation = std::get_if<Operation>(&work.task());
    return operation != nullptr ? nccl_function(*operation) : kMessagesFunction;
}

/// Marks the calls for one operation in the flight record.
struct CallMarks {
    const DeviceCallMark& mark;
    const NcclWork& work;
    TimePoint since;

    void enter(std::string_view call) const { mark.enter(call, work.entry_id(), since); }
    /// NCCL has taken the call and goes on with it by itself.
    void in_progress() const { enter(fmt::format("{} (in progress)", nccl_function(work))); }
};

/// Puts the operation on the group's stream, or into the graph of the caller's.
ncclResult_t start(const NcclGroup& group, NcclWork& work, const CallMarks& marks) {
    marks.enter("cuStreamWaitEvent");
    work.follow_caller();
    marks.enter(nccl_function(work));
    const auto* const operation = std::get_if<Operation>(&work.task());
    NcclTarget target = *group.target;
    if (work.is_replay()) {
        const CudaApi& cuda = group.device->cuda();
        check_cuda(cuda, cuda.graph_launch(operation->graph, target.stream), "cuGraphLaunch");
        return ncclSuccess;
    }
    if (work.is_captured()) target.stream = work.caller();
    const ncclComm_t comm = group.communicator->get();
    return operation != nullptr ? start(*operation, target, comm)
                                : start(std::get<TransferList>(work.task()).transfers, target, comm);
}

/// The state of a launch: it has failed, or NCCL is still connecting it to peers, or neither: it is on the stream.
struct LaunchStep {
    std::optional<Failure> failure = {};
    bool in_progress = false;
};

/// Starts a launch, or looks at one that has been started.
LaunchStep take_step(const NcclGroup& group, NcclWork& work, bool started, const CallMarks& marks) {
    try {
        const ncclResult_t result = started ? group.communicator->state() : start(group, work, marks);
        if (result == ncclInProgress) return {.in_progress = true};
        if (result == ncclSuccess) {
            marks.enter("cuEventRecord");
            work.record_end();
            return {};
        }
        return {.failure = failure_of_work(group, work, error_code_of(result),
                                           "NCCL could not launch it: " + group.communicator->error_text(result))};
    } catch (...) {  // CUDA refused, or there is no memory
        return {.failure = failure_of_work(group, work, ErrorCode::System, caught())};
    }
}

/// What the device and NCCL report of an operation that has been launched.
struct Progress {
    bool done = false;
    std::optional<Failure> device_failure = {};
    std::optional<Failure> nccl_failure = {};
};

Progress progress_of(const NcclGroup& group, NcclWork& work, bool asks_nccl, const CallMarks& marks) {
    marks.enter("cuEventQuery");
    const CUresult state = work.query();
    work.mark_begun(state == CUDA_SUCCESS);
    if (state == CUDA_SUCCESS) return {.done = true};
    if (state != CUDA_ERROR_NOT_READY) {
        const std::string text = fmt::format(
            "CUDA failed: {}. A kernel of this process has failed, or the GPU has: `dmesg | grep Xid` on this host "
            "shows which",
            cuda_error_text(group.device->cuda(), state));
        return {.device_failure = failure_of_work(group, work, ErrorCode::System, text)};
    }
    marks.enter("ncclCommGetAsyncError");
    const ncclResult_t error = asks_nccl ? group.communicator->state() : ncclSuccess;
    if (error == ncclSuccess || error == ncclInProgress) return {};
    const std::string text =
        fmt::format("NCCL failed: {}. NCCL_DEBUG=WARN has NCCL print more", group.communicator->error_text(error));
    return {.nccl_failure = failure_of_work(group, work, error_code_of(error), text)};
}

/// Has the caller of a captured operation go on, for the abort waits for the end of the capture. Not while NCCL adds to
/// the graph, which the caller would end.
void end_launch_in_capture(const NcclGroup& group, const GroupWatch::Works& works) {
    if (std::ranges::none_of(works, [](const auto& work) { return work->is_captured() && !work->launched(); })) return;
    const TimePoint limit = Clock::now() + group.limits.call_wait();
    for (Backoff backoff; group.communicator->state() == ncclInProgress && Clock::now() < limit;) backoff.pause();
    for (const auto& work : works) work->give_up_launch();
}

/// Returns whether the device has come to the oldest of the operations that are on the stream, or has failed. Not if
/// one of them is a replay: its graph also holds work of the program, which goes on after NCCL's kernels have left.
bool is_on_device(const GroupWatch::Works& works) {
    if (std::ranges::any_of(works, [](const auto& work) { return work->is_replay(); })) return false;
    for (const auto& work : works) {
        if (!work->launched()) continue;
        const CUresult state = work->query();
        if (state == CUDA_SUCCESS) continue;
        if (state != CUDA_ERROR_NOT_READY) return true;
        work->mark_begun(false);
        return work->has_begun();
    }
    return false;
}

}  // namespace

std::shared_ptr<DeviceQueue> DeviceQueue::of(const CudaApi& cuda, int device) {
    static ddprun::Mutex& mutex = *new ddprun::Mutex;  // never destroyed: a program may end groups at its exit
    static auto& made = *new std::map<int, std::weak_ptr<DeviceQueue>>;
    const ddprun::Lock lock(mutex);
    auto queue = made[device].lock();
    if (queue == nullptr) made[device] = queue = std::make_shared<DeviceQueue>(cuda, device);
    return queue;
}

DeviceQueue::DeviceQueue(const CudaApi& cuda, int device)
    : cuda_(cuda),
      context_(cuda_, device),
      watchdog_(Watchdog::of_process()),
      call_mark_(DeviceCallMark::of_device(device)) {
    thread_ = start_signal_masked_thread("ddp-nccl", [this] { run(); });
    watchdog_->add(*this);
}

DeviceQueue::~DeviceQueue() {
    watchdog_->remove(*this);
    {
        const ddprun::Lock lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void DeviceQueue::add(std::shared_ptr<NcclGroup> group) {
    const ddprun::Lock lock(mutex_);
    groups_.push_back(std::move(group));
}

void DeviceQueue::remove(NcclGroup& group) {
    std::shared_ptr<NcclGroup> removed;  // destroyed without the mutex
    const ddprun::Lock lock(mutex_);
    group.closing = true;
    const Failure destroyed{
        .code = ErrorCode::Aborted, .cause = group.own_rank + ": the group was destroyed", .names_group = true};
    // The program may have seen by a stream that its operations are done: the queue looks before they count as in
    // flight. It may be in a call that takes long, for example while the program pins memory.
    const TimePoint limit = Clock::now() + group.limits.call_wait();
    while (!group.watch.works().empty() && !group.watch.failure() && !group.is_behind) {
        if (!changed_.wait_until(mutex_, limit)) break;
    }
    if (!group.watch.works().empty()) fail_now(group, destroyed, false);
    while (!group.watch.works().empty() || group.state == State::kAborting || busy_with_ == &group ||
           !group.callbacks->is_idle()) {
        changed_.wait(mutex_);
    }
    if (!to_launch_.empty() && to_launch_.front().group == &group) is_launching_ = false;
    std::erase_if(to_launch_, [&](const Launch& launch) { return launch.group == &group; });
    const auto found = std::ranges::find(groups_, &group, [](const auto& one) { return one.get(); });
    removed = std::move(*found);
    groups_.erase(found);
    changed_.notify_all();  // the queue may go on with another group
}

void DeviceQueue::submit(NcclGroup& group, std::shared_ptr<NcclWork> work) {
    std::exception_ptr error;
    {
        const ddprun::Lock lock(mutex_);
        if (group.state == State::kOver) {
            error = group.watch.error_for(*work);
        } else {
            group.watch.add(work);
            if (!group.watch.failure()) to_launch_.push_back({&group, work});
            if (group.watch.failure()) work->give_up_launch();
            if (group.closing) {  // by a callback
                fail_now(group,
                         {.code = ErrorCode::Aborted,
                          .cause = group.own_rank + ": the group was destroyed",
                          .names_group = true},
                         false);
            }
            has_submitted_ = true;
            if (!std::exchange(is_watched_, true)) watchdog_->wake();
        }
    }
    if (error) return end_work(group, work, error);
    changed_.notify_all();
}

void DeviceQueue::fail(NcclGroup& group, Failure failure) {
    const ddprun::Lock lock(mutex_);
    fail_now(group, std::move(failure), true);
}

std::optional<Failure> DeviceQueue::failure_of(const NcclGroup& group) const {
    const ddprun::Lock lock(mutex_);
    return group.watch.failure();
}

void DeviceQueue::fail_with(NcclGroup& group, std::function<std::optional<Error>()> other) {
    const ddprun::Lock lock(mutex_);
    group.other_failure.swap(other);
}

void DeviceQueue::hand_out(NcclGroup& group) {
    const ddprun::Lock lock(mutex_);
    group.is_starting = false;
}

void DeviceQueue::before_abort(NcclGroup& group, std::function<void()> note) {
    const ddprun::Lock lock(mutex_);
    if (group.watch.failure()) return note();
    group.before_abort = std::move(note);
}

bool DeviceQueue::begin_capture(NcclGroup& group) {
    const ddprun::Lock lock(mutex_);
    group.is_capturing = std::ranges::all_of(groups_, [&](const auto& other) {
        return other.get() == &group || (!other->is_capturing && other->communicator->graphs().empty());
    });
    return group.is_capturing;
}

void DeviceQueue::end_capture(NcclGroup& group) {
    const ddprun::Lock lock(mutex_);
    group.is_capturing = false;
    if (group.state != State::kAborting) return;
    group.abort_deadline = Clock::now() + group.limits.abort_timeout;  // for what has waited for this
    group.is_late = false;
}

void DeviceQueue::notice_idle_callbacks() {
    { const ddprun::Lock lock(mutex_); }  // a thread in remove() is waiting now, or has yet to look
    changed_.notify_all();
}

void DeviceQueue::run() {
    (void)context_.begin_thread();
    Backoff backoff;
    const ddprun::Lock lock(mutex_);
    while (!stop_) {
        if (!has_work()) {
            backoff.restart();
            mark_no_call();  // after a launch whose group has been removed
            changed_.wait(mutex_);
            continue;
        }
        bool moved = !to_launch_.empty() && step_launch();
        for (std::size_t i = 0; i < groups_.size(); ++i) moved = step_group(*groups_[i]) || moved;
        if (moved) {
            backoff.restart();
        } else {
            pause(backoff);
        }
    }
}

bool DeviceQueue::has_work() const {
    return !to_launch_.empty() || std::ranges::any_of(groups_, [](const auto& group) {
        return group->state == State::kRunning && !group->watch.works().empty();
    });
}

void DeviceQueue::pause(Backoff& backoff) {
    if (const auto pause = backoff.next(); pause > pause.zero()) {
        (void)changed_.wait_for(mutex_, pause);
    } else {
        mutex_.unlock();
        std::this_thread::yield();
        mutex_.lock();
    }
}

TimePoint DeviceQueue::enter(NcclGroup& group) {
    busy_with_ = &group;
    const TimePoint now = busy_since_ = Clock::now();
    mutex_.unlock();
    return now;
}

void DeviceQueue::leave() {
    mutex_.lock();
    const NcclGroup& group = *std::exchange(busy_with_, nullptr);
    if (group.closing || group.watch.failure()) changed_.notify_all();
}

void DeviceQueue::mark_no_call() {
    if (!is_launching_) return call_mark_.leave();
    CallMarks{call_mark_, *to_launch_.front().work, launching_since_}.in_progress();
}

const NcclWork* DeviceQueue::connecting() const { return is_launching_ ? to_launch_.front().work.get() : nullptr; }

/// Goes on with the oldest launch. Returns whether it is over. While NCCL connects it to peers, none can follow.
bool DeviceQueue::step_launch() {
    NcclGroup& group = *to_launch_.front().group;
    if (!group.watch.failure()) {
        const bool started = std::exchange(is_launching_, true);
        if (!started) launching_since_ = Clock::now();
        NcclWork& work =
            *to_launch_.front().work;  // only this thread and remove(), which waits for it, change the front
        const CallMarks marks{call_mark_, work, launching_since_};
        enter(group);
        LaunchStep step = take_step(group, work, started, marks);
        leave();
        if (!group.watch.failure()) {
            if (step.in_progress) {
                mark_no_call();
                return false;
            }
            if (step.failure) fail_now(group, std::move(*step.failure), true);
        }
    }
    is_launching_ = false;
    mark_no_call();
    to_launch_.pop_front();
    return true;
}

/// Takes note that the oldest operation of a group goes on, for a thread in remove().
void DeviceQueue::find_behind(NcclGroup& group) {
    if (group.closing && !std::exchange(group.is_behind, true)) changed_.notify_all();
}

/// Looks at the oldest operation of the group. Returns whether it has ended.
bool DeviceQueue::step_group(NcclGroup& group) {
    if (group.watch.works().empty() || group.watch.failure()) return false;
    if (!group.watch.works().front()->launched()) {
        find_behind(group);
        return false;
    }
    std::shared_ptr<NcclWork> first = group.watch.works().front();
    const bool asks_nccl = !is_launching_ || to_launch_.front().group != &group;
    const bool closing = group.closing;
    const TimePoint since = enter(group);
    const Progress progress = progress_of(group, *first, asks_nccl, {call_mark_, *first, since});
    leave();
    mark_no_call();
    if (group.watch.failure()) return true;
    if (progress.device_failure) fail_now(group, *progress.device_failure, true);
    if (progress.nccl_failure) {
        group.watch.note_error(*progress.nccl_failure);
        watchdog_->wake();
    }
    if (!progress.done) {
        if (closing) find_behind(group);  // else the device may have ended it between the query and remove()
        return false;
    }
    // It leaves the group before its waiters wake: one of them may destroy the group, with nothing in flight then.
    group.watch.pop();
    enter(group);
    end_work(group, first, nullptr);
    first.reset();  // the last owner of an operation gives its events back
    leave();
    return true;
}

/// Starts the abort of a group, and of those that fail with it, before any is waited for: the kernels of one may hold
/// up the abort of another.
void DeviceQueue::fail_now(NcclGroup& group, Failure failure, bool shares) {
    if (group.watch.failure()) return;
    group.watch.fail(std::move(failure));
    if (group.before_abort) group.before_abort();
    group.state = State::kAborting;
    group.failed_at = Clock::now();
    group.abort_deadline = group.failed_at + group.limits.abort_timeout;
    try {
        start_signal_masked_thread("ddp-abort", [queue = shared_from_this(), owner = group.shared_from_this()] {
            queue->abort(*owner);
        }).detach();
    } catch (const Error&) {
        group.abort_deadline = Clock::now();  // as for an abort that does not return
    }
    if (shares && !group.is_starting) share(group);
    changed_.notify_all();
    watchdog_->wake();
}

void DeviceQueue::share(const NcclGroup& from) {
    const ErrorCode code = from.watch.failure()->code;
    if (code != ErrorCode::Timeout && code != ErrorCode::PeerLost) return;
    const TimePoint now = Clock::now();
    for (const auto& other : groups_) {
        if (other.get() == &from || other->watch.failure()) continue;
        other->watch.hear(from.watch, now);
        if (auto found = other->watch.find_failure(now, connecting())) fail_now(*other, std::move(*found), false);
    }
}

/// Aborts the communicator, then ends all operations: until then the device may write to their buffers. Runs on a
/// thread of its own, which may never return: look() sees to that.
void DeviceQueue::abort(NcclGroup& group) {
    (void)context_.begin_thread();  // if it fails, so does the abort, and there is no other way
    GroupWatch::Works works;
    {
        const ddprun::Lock lock(mutex_);
        while (busy_with_ == &group) changed_.wait(mutex_);
        works = group.watch.works();
    }
    const bool on_device = is_on_device(works);
    end_launch_in_capture(group, works);
    works.clear();
    {
        const ddprun::Lock lock(mutex_);
        group.is_on_device = on_device;
    }
    group.communicator->abort();
    // NCCL has asked the kernels to stop; this waits until they have.
    const CUstream stream = group.device->stream();
    CUresult drained = cuda_.event_record(group.drained, stream);
    if (drained == CUDA_SUCCESS) drained = CUDA_ERROR_NOT_READY;
    for (Backoff backoff; drained == CUDA_ERROR_NOT_READY; backoff.pause()) drained = cuda_.event_query(group.drained);
    const ddprun::Lock lock(mutex_);
    end_works(group);
}

/// Ends the operations with the failure of their group. Releases the mutex meanwhile.
void DeviceQueue::end_works(NcclGroup& group) {
    while (!group.watch.works().empty()) {
        const auto works = group.watch.take_all();
        std::vector<std::exception_ptr> errors;
        for (const auto& work : works) errors.push_back(group.watch.error_for(*work));
        mutex_.unlock();
        for (std::size_t i = 0; i < works.size(); ++i) end_work(group, works[i], errors[i]);
        mutex_.lock();
    }
    group.state = State::kOver;
    changed_.notify_all();
}

std::optional<TimePoint> DeviceQueue::look() {
    std::optional<TimePoint> next;
    std::vector<std::pair<std::function<void(const std::string&)>, std::string>> ends;
    {
        const ddprun::Lock lock(mutex_);
        const TimePoint now = Clock::now();
        const auto look_until = [&](std::optional<TimePoint> time) {
            if (time && (!next || *time < *next)) next = time;
        };
        for (std::size_t i = 0; i < groups_.size(); ++i) {
            const std::shared_ptr<NcclGroup> group = groups_[i];
            if (group->state == State::kAborting && is_stuck(*group, now))
                ends.emplace_back(group->limits.end_process, last_line(*group, now));
            if (group->state == State::kAborting) look_until(group->abort_deadline);
            if (group->watch.failure()) continue;
            const auto other = group->other_failure ? group->other_failure() : std::nullopt;
            if (other) fail_now(*group, ddp::detail::failure_of(*other), true);
            if (auto found = group->watch.find_failure(now, connecting())) fail_now(*group, std::move(*found), true);
            look_until(group->state == State::kAborting ? group->abort_deadline : group->watch.next_look(now));
        }
        if (std::exchange(has_submitted_, false)) look_until(now + kLookInterval);
        is_watched_ = next.has_value();
    }
    for (const auto& [end, line] : ends) end(line);
    return next;
}

bool DeviceQueue::is_in_call(const NcclGroup& group, TimePoint now) const {
    return busy_with_ == &group && now - busy_since_ >= kSecondLook;
}

/// Returns whether the abort of a group may go on after its deadline: it frees memory, and so waits for all other work
/// of the device; and it waits for the end of a capture with operations of the group. If that takes too long, it fails
/// the groups that have such work, once.
bool DeviceQueue::may_wait(NcclGroup& group, TimePoint now) {
    if (is_in_call(group, now)) return false;
    if (now >= group.failed_at + group.limits.abort_timeout + group.limits.program_timeout)
        return !std::exchange(group.has_failed_others, true) && fail_others(group);
    return !group.is_on_device || group.is_capturing || std::ranges::any_of(groups_, [&](const auto& other) {
        if (other.get() == &group || other->watch.works().empty()) return false;
        return other->state == State::kRunning || now < other->failed_at + other->limits.abort_timeout;
    });
}

/// Fails the other groups that have operations in flight. Returns whether there are any.
bool DeviceQueue::fail_others(const NcclGroup& group) {
    bool found = false;
    for (const auto& other : groups_) {
        if (other->watch.works().empty() || other->watch.failure()) continue;
        found = true;
        fail_now(*other,
                 {.code = group.watch.failure()->code,
                  .cause = fmt::format("{}: given up, because the abort of another group of this device waits for it: "
                                       "{}",
                                       other->own_rank, group.watch.failure()->cause),
                  .names_group = true},
                 false);
    }
    return found;
}

/// Returns whether the process has to end, because the device does not let go of a group.
bool DeviceQueue::is_stuck(NcclGroup& group, TimePoint now) {
    if (now < group.abort_deadline) return false;
    // The process may have been paused: there is a second look.
    group.is_late = !group.is_late;
    if (group.is_late) {
        group.abort_deadline = now + kSecondLook;
        return false;
    }
    const bool waits = may_wait(group, now);
    group.abort_deadline = waits ? now + group.limits.abort_timeout : TimePoint::max();
    return !waits;
}

/// Returns the last line of this process. The operations of the group do not end before: the program would end the
/// process then, with another exit code.
std::string DeviceQueue::last_line(NcclGroup& group, TimePoint now) {
    const std::string late =
        fmt::format("did not return within {}", ddprun::rounded_seconds_text(now - group.failed_at));
    const std::string text = fmt::format("{} {}",
                                         is_in_call(group, now) ? "a call of NCCL or CUDA"
                                         : group.is_capturing   ? "the function of GradientReducer::capture"
                                                                : "ncclCommAbort",
                                         late);
    const std::string who = group.is_capturing ? "NCCL waits for the end of the capture"
                                               : fmt::format("CUDA device {} does not answer", group.device->index());
    const std::string line = fmt::format("{}; after that {}: {}, and this process ends with code {}",
                                         group.watch.failure()->cause, text, who, ddprun::exit_code::kDeviceStuck);
    group.watch.add_to_cause(fmt::format("; and {}, so this process ends", text));
    if (!group.watch.works().empty()) group.watch.works().front()->note_abort(line);
    return line;
}

}  // namespace ddp::detail
