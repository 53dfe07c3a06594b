#include "worker_lib/src/nccl/watchdog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/text/number.hpp"
#include "worker_lib/src/nccl/group_registry.hpp"
#include "worker_lib/src/util/signal_masked_thread.hpp"

namespace ddp::detail {
namespace {

using ddprun::Clock;

/// Between two looks at the processes of the peers, each a system call.
constexpr auto kLookInterval = std::chrono::milliseconds(100);
/// From NCCL's error to the end of the process that causes it: its sockets are closed first.
constexpr auto kEndingTime = std::chrono::milliseconds(500);

Failure failure_of(const NcclWork& work, ErrorCode code, std::string text) {
    return {.code = code, .operation = work.text(), .cause = std::move(text), .names_group = true};
}

/// Adds the peers that are known to be lost. If there are any, they are the cause, whatever CUDA or NCCL reported.
Failure explained(Failure failure, const Peers& peers) {
    const auto losses = peers.losses();
    if (!losses) return failure;
    failure.code = ErrorCode::PeerLost;
    failure.cause += fmt::format("; {}", losses->what());
    failure.culprits = losses->culprits();
    return failure;
}

}  // namespace

Watchdog::Watchdog(std::string own_rank, const Peers& peers, std::shared_ptr<GroupDevice> device,
                   Communicator& communicator, const NcclLimits& limits)
    : own_rank_(std::move(own_rank)),
      peers_(peers),
      device_(std::move(device)),
      communicator_(communicator),
      limits_(limits) {
    const auto wake = [this] {
        { const ddprun::Lock lock(mutex_); }  // run() is waiting now, or has yet to look at is_over()
        changed_.notify_all();
    };
    callbacks_.emplace(
        device_, [this](const EndedWork& ended) { run_callbacks(ended); }, wake);
    thread_ = start_signal_masked_thread("ddp-watchdog", [this] { run(); });  // last: it looks at callbacks_
    GroupRegistry::of_process().add(*this);
}

void Watchdog::end() {
    GroupRegistry::of_process().remove(*this);
    {
        const ddprun::Lock lock(mutex_);
        stop_ = true;
        if (!pending_.empty() || expected_)
            note({.code = ErrorCode::Aborted, .cause = own_rank_ + ": the group was destroyed", .names_group = true});
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    callbacks_.reset();
}

Watchdog::Expectation::Expectation(Watchdog& watchdog, std::shared_ptr<NcclWork> work) : watchdog_(watchdog) {
    watchdog_.expect(std::move(work));
}

void Watchdog::expect(std::shared_ptr<NcclWork> work) {
    if (!communicator_.may_block()) return;  // the call looks at its deadline itself
    {
        const ddprun::Lock lock(mutex_);
        if (held_up_ == expected_.get()) held_up_ = nullptr;
        expected_ = std::move(work);
    }
    changed_.notify_all();
}

void Watchdog::watch(std::shared_ptr<NcclWork> work) {
    {
        const ddprun::Lock lock(mutex_);
        pending_.push_back(std::move(work));
    }
    changed_.notify_all();
}

void Watchdog::fail(Failure failure) {
    {
        const ddprun::Lock lock(mutex_);
        note(std::move(failure));
    }
    changed_.notify_all();
}

void Watchdog::hear(const Failure& failure, const Peers& theirs) {
    {
        const ddprun::Lock lock(mutex_);
        if (failure_ || heard_) return;
        Failure shared = failure;
        shared.culprits = peers_.ranks_here(failure.culprits, theirs);
        shared.operation.clear();
        shared.cause = fmt::format("{}: another group of this device has failed: {}: {}", own_rank_, failure.operation,
                                   failure.cause);
        if (!shared.culprits.empty()) {
            is_shared_ = true;
            note(std::move(shared));
        } else if (!pending_.empty()) {
            heard_ = std::move(shared);
            heard_until_.reset();
        }
    }
    changed_.notify_all();
}

/// Keeps the first failure, with its cause if that is known.
void Watchdog::note(Failure failure) {
    if (failure_) return;
    const bool decided = failure.code == ErrorCode::Aborted;  // the reason was given to abort()
    failure_ = decided ? std::move(failure) : explained(std::move(failure), peers_);
    // Lets threads out of their calls before the abort. Only after failure_ is set: an operation that the call has not
    // launched must not pass for done.
    communicator_.give_up();
}

std::optional<Failure> Watchdog::failure() const {
    const ddprun::Lock lock(mutex_);
    return failure_;
}

void Watchdog::run() {
    (void)device_->begin_thread();
    Backoff backoff;
    const ddprun::Lock lock(mutex_);
    for (;;) {
        await_work();
        if (failure_ && has_work()) {
            give_up();
        } else if (has_work()) {
            follow_first(backoff);
        } else if (is_expected_late()) {
            note(*missed_deadline());
        } else if (auto found = missed_peer()) {
            note(std::move(*found));
        } else if (is_over()) {
            return;
        }
    }
}

/// Waits until there is something to do, or to look at for an expected work, or all is over.
void Watchdog::await_work() {
    while (!is_over() && !has_work()) {
        if (expected_ && !failure_) {
            (void)changed_.wait_until(mutex_, std::min(expected_->deadline(), Clock::now() + kLookInterval));
            return;
        }
        changed_.wait(mutex_);
    }
}

bool Watchdog::is_expected_late() const { return expected_ && !failure_ && Clock::now() >= expected_->deadline(); }

/// Looks once at the oldest operation: completes its work, fails the group, or waits a little.
void Watchdog::follow_first(Backoff& backoff) {
    const std::shared_ptr<NcclWork> first = pending_.front();
    mutex_.unlock();
    const CUresult state = first->query();
    first->mark_begun(state == CUDA_SUCCESS);
    std::optional<Failure> found = state == CUDA_SUCCESS ? std::nullopt : examine(*first, state);
    mutex_.lock();
    if (state == CUDA_SUCCESS) {
        // It leaves the queue before its waiters wake: one of them may destroy the group, with nothing in flight then.
        pending_.pop_front();
        held_up_ = nullptr;
        heard_.reset();
        backoff.restart();
        mutex_.unlock();
        end_work(first, nullptr);
        mutex_.lock();
        return;
    }
    if (!found) found = missed_deadline();
    if (!found) found = missed_peer();
    if (!found) found = shared_failure(*first);
    if (found) {
        note(std::move(*found));
        return;
    }
    if (const auto pause = backoff.next(); pause > pause.zero()) {
        if (!stop_ && !failure_) (void)changed_.wait_for(mutex_, pause);
    } else {
        mutex_.unlock();
        std::this_thread::yield();
        mutex_.lock();
    }
}

/// Returns the error that the device or NCCL has met while `first` was running, if any.
std::optional<Failure> Watchdog::examine(const NcclWork& first, CUresult state) {
    if (state != CUDA_ERROR_NOT_READY) {
        return failure_of(first, ErrorCode::System,
                          fmt::format("{}: CUDA failed: {}", own_rank_, cuda_error_text(device_->cuda(), state)));
    }
    const ncclResult_t error = communicator_.async_error();
    if (error == ncclSuccess) return std::nullopt;
    (void)peers_.await_loss(kEndingTime);  // a lost peer is the better cause: note() adds it
    return failure_of(first, error == ncclRemoteError ? ErrorCode::PeerLost : ErrorCode::System,
                      fmt::format("{}: NCCL failed: {}", own_rank_, communicator_.error_text(error)));
}

/// Returns the failure of an operation that is late, if any. Looks at all operations, since a later one may have the
/// earlier deadline.
std::optional<Failure> Watchdog::missed_deadline() const {
    const auto now = Clock::now();
    if (is_expected_late())
        return failure_of(*expected_, ErrorCode::Timeout, fmt::format("{}: {}", own_rank_, kStillConnecting));
    for (const auto& work : pending_) {
        if (now < work->deadline()) continue;
        std::string text = fmt::format("{}: not done on the device at its deadline", own_rank_);
        if (work != pending_.front()) text += "; still running is " + pending_.front()->text();
        return failure_of(*work, ErrorCode::Timeout, std::move(text));
    }
    return std::nullopt;
}

/// Returns the failure of the oldest operation if it needs a rank whose process has ended, and has not ended by itself
/// in the time for that. Looks at most once in kLookInterval.
std::optional<Failure> Watchdog::missed_peer() {
    const NcclWork* const first = pending_.empty() ? expected_.get() : pending_.front().get();
    const auto now = Clock::now();
    if (first == nullptr || failure_ || now < next_look_) return std::nullopt;
    next_look_ = now + kLookInterval;
    if (!peers_.await_loss(ddprun::Duration::zero()) || !needs_lost_peer(*first)) return std::nullopt;
    if (held_up_ != first) {
        held_up_ = first;
        held_up_since_ = now;
    }
    if (now - held_up_since_ < limits_.loss_timeout) return std::nullopt;
    return failure_of(*first, ErrorCode::PeerLost,
                      fmt::format("{}: not done {} after a rank was lost", own_rank_,
                                  ddprun::rounded_seconds_text(limits_.loss_timeout)));  // note() adds which
}

/// Returns the failure of another group if the oldest operation does not end either. One to which the device has not
/// come may wait for that group, whose abort lets it go on.
std::optional<Failure> Watchdog::shared_failure(const NcclWork& first) {
    if (!heard_ || failure_ || !first.has_begun()) return std::nullopt;
    const auto now = Clock::now();
    if (!heard_until_) heard_until_ = now + limits_.shared_timeout;
    if (now < *heard_until_) return std::nullopt;
    is_shared_ = true;
    return heard_;
}

/// A collective needs all ranks, a batch of messages only those that it names. Precondition: a process has ended.
bool Watchdog::needs_lost_peer(const NcclWork& work) const {
    const auto* const batch = std::get_if<TransferList>(&work.task());
    return batch == nullptr || std::ranges::any_of(batch->transfers, [&](const Transfer& message) {
               return peers_.loss_of(message.peer).has_value();
           });
}

/// Wakes the waiters of a work here, and has its callbacks run on their own thread.
void Watchdog::end_work(const std::shared_ptr<NcclWork>& work, std::exception_ptr error) {
    auto callbacks = work->end(std::move(error));
    if (!callbacks.empty()) callbacks_->add({work, std::move(callbacks)});
}

/// Runs on the callback thread. An exception of a callback aborts the group, unless it has failed already.
void Watchdog::run_callbacks(const EndedWork& ended) {
    ended.work->run(ended.callbacks, [&](std::string_view thrown) {
        if (failure()) return;
        ended.work->note_abort(thrown);
        fail({.code = ErrorCode::Aborted,
              .cause = fmt::format("{}: aborted: {}", own_rank_, thrown),
              .names_group = true});
    });
}

/// Aborts the communicator, then fails all pending works: until the abort has ended, the device may write to their
/// buffers. If it does not end in time they fail all the same, with a text that says to end the process. Releases the
/// mutex meanwhile. Precondition: `failure_` is set.
void Watchdog::give_up() {
    if (!aborted_) abort_communicator();
    const auto works = std::exchange(pending_, {});
    std::vector<std::exception_ptr> errors;
    for (const auto& work : works) errors.push_back(error_for(*work));
    mutex_.unlock();
    for (std::size_t i = 0; i < works.size(); ++i) end_work(works[i], errors[i]);
    mutex_.lock();
}

void Watchdog::abort_communicator() {
    const auto recorded =
        std::find_if(pending_.rbegin(), pending_.rend(), [](const auto& work) { return work->recorded(); });
    const std::shared_ptr<NcclWork> last = recorded == pending_.rend() ? nullptr : *recorded;
    const Failure failure = *failure_;
    const bool passes_on = !is_shared_ && (failure.code == ErrorCode::Timeout || failure.code == ErrorCode::PeerLost);
    mutex_.unlock();
    // Before this one waits for its own abort, which may in turn wait for the kernels of the others.
    if (passes_on) GroupRegistry::of_process().pass_on(failure, *this);
    const auto limit = Clock::now() + limits_.abort_timeout;
    const bool returned = communicator_.abort();
    // An abort that has returned has asked the kernels to stop; this waits until they have.
    for (Backoff backoff; last && last->query() == CUDA_ERROR_NOT_READY && Clock::now() < limit; backoff.pause()) {
    }
    mutex_.lock();
    aborted_ = true;
    if (!returned) {
        failure_->cause += fmt::format("; and ncclCommAbort did not return within {}, end this process",
                                       ddprun::rounded_seconds_text(limits_.abort_timeout));
    }
}

/// Returns the error of one work: it names the work's own operation, then the one that failed.
std::exception_ptr Watchdog::error_for(const NcclWork& work) const {
    const std::string own = work.text();
    const bool other = !failure_->operation.empty() && failure_->operation != own;
    const std::string text = other ? fmt::format("{}: given up after {}: {}", own, failure_->operation, failure_->cause)
                                   : fmt::format("{}: {}", own, failure_->cause);
    return std::make_exception_ptr(Error(failure_->code, text, failure_->culprits));
}

}  // namespace ddp::detail
