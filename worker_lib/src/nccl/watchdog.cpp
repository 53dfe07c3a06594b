#include "worker_lib/src/nccl/watchdog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace ddp::detail {
namespace {

using ddprun::Clock;

Failure failure_of(const NcclWork& work, ErrorCode code, std::string text) {
    return {code, std::move(text), work.text(), {}};
}

/// Adds who is known to be gone: then that is the cause, whatever the device or NCCL has noticed of it.
Failure explained(Failure failure, const Peers& peers) {
    const auto absence = peers.absence();
    if (!absence) return failure;
    failure.code = ErrorCode::PeerLost;
    failure.text += fmt::format("; {}", absence->what());
    failure.culprits = absence->culprits();
    return failure;
}

}  // namespace

Watchdog::Watchdog(std::string place, const Peers& peers, std::shared_ptr<GroupDevice> device,
                   Communicator& communicator, const NcclLimits& limits)
    : place_(std::move(place)),
      peers_(peers),
      device_(std::move(device)),
      communicator_(communicator),
      limits_(limits) {
    try {
        thread_ = std::thread([this] { run(); });
        if (communicator_.may_block()) callbacks_ = std::thread([this] { run_callbacks(); });
    } catch (const std::system_error&) {
        end();
        throw;
    }
}

void Watchdog::end() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
        if (!pending_.empty() || expected_) note({ErrorCode::Aborted, place_ + ": the group was destroyed", {}, {}});
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    changed_.notify_all();
    if (callbacks_.joinable()) callbacks_.join();
}

Watchdog::Expectation::Expectation(Watchdog& watchdog, std::shared_ptr<NcclWork> work) : watchdog_(watchdog) {
    watchdog_.expect(std::move(work));
}

void Watchdog::expect(std::shared_ptr<NcclWork> work) {
    if (!communicator_.may_block()) return;  // then the call looks at its deadline itself
    {
        const std::lock_guard lock(mutex_);
        expected_ = std::move(work);
    }
    changed_.notify_all();
}

void Watchdog::watch(std::shared_ptr<NcclWork> work) {
    {
        const std::lock_guard lock(mutex_);
        pending_.push_back(std::move(work));
    }
    changed_.notify_all();
}

void Watchdog::fail(Failure failure) {
    {
        const std::lock_guard lock(mutex_);
        note(std::move(failure));
    }
    changed_.notify_all();
}

/// The first failure, with its cause if that is known. Called with the lock.
void Watchdog::note(Failure failure) {
    if (failure_) return;
    const bool decided = failure.code == ErrorCode::Aborted;  // somebody said why
    failure_ = decided ? std::move(failure) : explained(std::move(failure), peers_);
    // run()'s thread, which aborts the communicator, may be in a callback that waits for a call to come back. Not
    // before failure_ is set: what that call has not launched must not pass for done.
    communicator_.give_up();
}

std::optional<Failure> Watchdog::failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
}

void Watchdog::run() {
    // Events of another device than the current one can be queried too; but the first call must not start device 0.
    (void)begin_thread(device_->cuda(), device_->index());
    Pauses pauses;
    Lock lock(mutex_);
    for (;;) {
        await_work(lock);
        if (failure_ && has_work()) {
            give_up(lock);
        } else if (has_work()) {
            follow_first(lock, pauses);
        } else if (is_expected_late()) {
            note(*missed_deadline());
        } else if (is_over()) {
            return;
        }
    }
}

/// Completes works where a callback's call may stay in NCCL: only run() could let it out again.
void Watchdog::run_callbacks() {
    (void)begin_thread(device_->cuda(), device_->index());
    Lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return over_ || !ended_.empty(); });
        if (ended_.empty()) return;
        Ended next = std::move(ended_.front());
        ended_.pop_front();
        in_callback_ = true;
        lock.unlock();
        complete(next);
        next = {};  // the last owner of a work gives its event back
        lock.lock();
        in_callback_ = false;
        changed_.notify_all();
    }
}

/// Until there is something to do, an expected work is late, or the end.
void Watchdog::await_work(Lock& lock) {
    const auto awake = [this] { return is_over() || has_work(); };
    changed_.wait(lock, [&] { return awake() || (expected_ && !failure_); });
    if (awake()) return;
    changed_.wait_until(lock, expected_->deadline(), [&] { return awake() || !expected_ || failure_; });
}

bool Watchdog::is_expected_late() const { return expected_ && !failure_ && Clock::now() >= expected_->deadline(); }

/// Looks once at the oldest operation: completes it, fails the group, or waits a little.
void Watchdog::follow_first(Lock& lock, Pauses& pauses) {
    const std::shared_ptr<NcclWork> first = pending_.front();
    lock.unlock();
    first->its_turn();  // not when it was queued: the device may have much to do before it
    const cudaError_t state = first->query();
    std::optional<Failure> found = state == cudaSuccess ? std::nullopt : examine(*first, state);
    lock.lock();
    if (state == cudaSuccess) {
        // Out of the queue before its waiters wake: one of them may destroy the group, and nothing is in flight then.
        pending_.pop_front();
        pauses.restart();
        complete(lock, {first, nullptr});
        return;
    }
    if (!found) found = missed_deadline();
    if (found) {
        note(std::move(*found));
        return;
    }
    if (const auto pause = pauses.next(); pause > pause.zero()) {
        changed_.wait_for(lock, pause, [this] { return stop_ || failure_; });
    } else {
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
    }
}

/// Whether the device or NCCL has met an error while `first` was running.
std::optional<Failure> Watchdog::examine(const NcclWork& first, cudaError_t state) {
    if (state != cudaErrorNotReady) {
        return failure_of(first, ErrorCode::System,
                          fmt::format("{}: CUDA failed: {}", place_, device_->cuda().get_error_string(state)));
    }
    const ncclResult_t error = communicator_.async_error();
    if (error == ncclSuccess) return std::nullopt;
    return failure_of(first, error == ncclRemoteError ? ErrorCode::PeerLost : ErrorCode::System,
                      fmt::format("{}: NCCL failed: {}", place_, communicator_.error_text(error)));
}

/// Looks at all, since a later operation may have the earlier deadline. Called with the lock.
std::optional<Failure> Watchdog::missed_deadline() const {
    const auto now = Clock::now();
    if (is_expected_late())
        return failure_of(*expected_, ErrorCode::Timeout, fmt::format("{}: {}", place_, kStillConnecting));
    for (const auto& work : pending_) {
        if (now < work->deadline()) continue;
        std::string text = fmt::format("{}: not done on the device at its deadline", place_);
        if (work != pending_.front()) text += "; still running is " + pending_.front()->text();
        return failure_of(*work, ErrorCode::Timeout, std::move(text));
    }
    return std::nullopt;
}

/// Without the lock: callbacks run here, and may call the group.
void Watchdog::complete(Lock& lock, Ended ended) {
    if (communicator_.may_block()) {
        ended_.push_back(std::move(ended));
        changed_.notify_all();
        return;
    }
    lock.unlock();
    complete(ended);
    lock.lock();
}

/// What its callbacks throw nobody else catches: the group is given up for it, unless it has failed already.
void Watchdog::complete(const Ended& ended) {
    ended.work->complete(ended.error, [&](std::string_view thrown) {
        if (failure()) return;
        ended.work->note_abort(thrown);
        fail({ErrorCode::Aborted, fmt::format("{}: aborted: {}", place_, thrown), {}, {}});
    });
}

/// Ends the communicator first, since until then the device may write to the buffers, then fails all works.
void Watchdog::give_up(Lock& lock) {
    if (!aborted_) abort_communicator(lock);
    const auto works = std::exchange(pending_, {});
    for (const auto& work : works) complete(lock, {work, error_for(*work)});
}

void Watchdog::abort_communicator(Lock& lock) {
    const auto recorded =
        std::find_if(pending_.rbegin(), pending_.rend(), [](const auto& work) { return work->recorded(); });
    const std::shared_ptr<NcclWork> last = recorded == pending_.rend() ? nullptr : *recorded;
    lock.unlock();
    const auto limit = Clock::now() + limits_.abort_patience;
    const bool returned = communicator_.abort();
    // An abort that has returned has told the kernels to leave; this sees them out.
    for (Pauses pauses; last && last->query() == cudaErrorNotReady && Clock::now() < limit; pauses.pause()) {
    }
    lock.lock();
    aborted_ = true;
    if (!returned) {
        failure_->text += fmt::format("; and ncclCommAbort did not return within {:.1f} s, end this process",
                                      std::chrono::duration<double>(limits_.abort_patience).count());
    }
}

/// Each work's error names its own operation, then the one that failed. Called with the lock.
std::exception_ptr Watchdog::error_for(const NcclWork& work) const {
    const std::string own = work.text();
    const bool other = !failure_->operation.empty() && failure_->operation != own;
    const std::string text = other ? fmt::format("{}: given up after {}: {}", own, failure_->operation, failure_->text)
                                   : fmt::format("{}: {}", own, failure_->text);
    return std::make_exception_ptr(Error(failure_->code, text, failure_->culprits));
}

}  // namespace ddp::detail
