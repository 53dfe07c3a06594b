#include "worker_lib/src/nccl/watchdog.hpp"

#include <fmt/format.h>

#include <algorithm>
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
      limits_(limits),
      thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
        if (!pending_.empty()) note({ErrorCode::Aborted, place_ + ": the group was destroyed", {}, {}});
    }
    changed_.notify_all();
    thread_.join();
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
    (void)device_->cuda().set_device(device_->index());
    Pauses pauses;
    Lock lock(mutex_);
    for (;;) {
        const auto has_work = [this] { return !pending_.empty() || (failure_ && !aborted_); };
        changed_.wait(lock, [&] { return stop_ || has_work(); });
        if (!has_work()) return;
        if (failure_) {
            give_up(lock);
        } else {
            follow_first(lock, pauses);
        }
    }
}

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
        lock.unlock();
        first->complete(nullptr);  // without the lock: callbacks run here, and may call the group
        lock.lock();
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
    for (const auto& work : pending_) {
        if (now < work->deadline()) continue;
        std::string text = fmt::format("{}: not done on the device at its deadline", place_);
        if (work != pending_.front()) text += "; still running is " + pending_.front()->text();
        return failure_of(*work, ErrorCode::Timeout, std::move(text));
    }
    return std::nullopt;
}

/// Ends the communicator first, since until then the device may write to the buffers, then fails all works.
void Watchdog::give_up(Lock& lock) {
    if (!aborted_) abort_communicator(lock);
    const auto works = std::exchange(pending_, {});
    std::vector<std::exception_ptr> errors;
    for (const auto& work : works) errors.push_back(error_for(*work));
    lock.unlock();
    for (std::size_t i = 0; i < works.size(); ++i) works[i]->complete(errors[i]);
    lock.lock();
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
