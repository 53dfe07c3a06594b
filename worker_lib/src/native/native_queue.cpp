// The queue of a NativeBackend, its progress thread, and those who run operations in its place.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "worker_lib/src/native/native_backend.hpp"
#include "worker_lib/src/native/one_shot.hpp"

namespace ddp::detail {

namespace {

bool overlap(const Buffer& a, const Buffer& b) {
    const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data);
    const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data);
    return begin_a < begin_b + b.bytes() && begin_b < begin_a + a.bytes();
}

}  // namespace

/// Tells open() how it leaves the queue, which saves that one a lock.
class NativeBackend::QueueLock {
public:
    explicit QueueLock(NativeBackend& backend) : backend_(backend), lock_(backend.mutex_) {}
    ~QueueLock() {
        const bool ending = backend_.stopping_ || backend_.aborted_;
        const bool idle = backend_.jobs_.empty() && !backend_.wanted_ && !ending;
        backend_.idle_.store(idle, std::memory_order_relaxed);
        backend_.caller_waits_.store(!backend_.choice_.eager(), std::memory_order_relaxed);
    }
    QueueLock(const QueueLock&) = delete;
    QueueLock& operator=(const QueueLock&) = delete;
    /// For conditions, which release it; what has changed by then is seen when it goes.
    [[nodiscard]] std::unique_lock<std::mutex>& held() { return lock_; }

private:
    NativeBackend& backend_;
    std::unique_lock<std::mutex> lock_;
};

std::shared_ptr<WorkState> NativeBackend::enqueue(Operation&& operation, Step step) {
    auto work = std::make_shared<NativeWork>(operation, handle_);
    const QueueLock lock(*this);
    const bool others = !jobs_.empty();
    const bool given = step == Step::kArrived || (step == Step::kOpened && is_one_shot(topology_, operation));
    const bool all_given = given && (!others || jobs_.front().given);  // behind the first one all are
    jobs_.push_back({std::move(operation), work, step, given});
    if (all_given) return work;
    if (choice_.wake(others)) {
        wanted_ = true;
        changed_.notify_one();
    } else if (!std::exchange(watching_, true)) {
        changed_.notify_one();
    }
    return work;
}

/// Only if all before it are opened, and none of them has yet to write what this one gives.
bool NativeBackend::can_open_behind_others(const Operation& operation) {
    const QueueLock lock(*this);
    if (wanted_ || stopping_ || aborted_) return false;
    return std::ranges::all_of(jobs_, [&](const Job& job) {
        return job.step != Step::kNone && !overlap(job.operation.result(), operation.buffer);
    });
}

void NativeBackend::help(const WorkState& work) {
    const std::unique_lock running(running_, std::try_to_lock);
    if (!running) return hurry();  // whoever is at it may stop short of this work
    while (!work.done()) {
        const auto job = next_job(work.deadline());
        if (!job) return;
        perform(*job);
    }
}

void NativeBackend::hurry() {
    const QueueLock lock(*this);
    if (jobs_.empty()) return;
    wanted_ = true;
    changed_.notify_one();
}

/// Ends every wait of the progress thread. Work fails there, where nobody touches its buffer any more.
void NativeBackend::end(const Error& failure, bool tell_peers, std::uint64_t after) {
    if (tell_peers) {
        node_.poison(failure, after);
    } else {
        node_.stop(failure);
    }
    if (links_) links_->interrupt();
    {
        const QueueLock lock(*this);
        (tell_peers ? aborted_ : stopping_) = true;
    }
    changed_.notify_one();
}

/// One that may wait longer than `latest` is left to the progress thread: a helper has a deadline of its own to keep.
std::optional<NativeBackend::Job> NativeBackend::next_job(ddprun::TimePoint latest) {
    const QueueLock lock(*this);
    if (jobs_.empty()) {
        wanted_ = false;
        return std::nullopt;
    }
    if (jobs_.front().operation.deadline > latest) {
        wanted_ = true;
        changed_.notify_one();
        return std::nullopt;
    }
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    if (latest != ddprun::TimePoint::max() && !job.given) choice_.claimed();
    return job;
}

/// The progress thread.
void NativeBackend::run() {
    for (;;) {
        bool stopping = false;
        {
            QueueLock lock(*this);
            wait_until_wanted(lock);
            stopping = stopping_;
        }
        run_all();
        if (stopping) return;
    }
}

void NativeBackend::wait_until_wanted(QueueLock& lock) {
    while (!wanted_ && !stopping_ && !aborted_) {
        if (!watching_) {
            changed_.wait(lock.held());
        } else if (changed_.wait_for(lock.held(), WakeChoice::kPatience) == std::cv_status::timeout) {
            look_around();
        }
    }
}

void NativeBackend::look_around() {
    const Job* const first = jobs_.empty() ? nullptr : &jobs_.front();
    switch (choice_.look(first != nullptr && !first->given ? first->operation.seq : 0)) {
        case WakeChoice::Look::kWake: wanted_ = true; break;
        case WakeChoice::Look::kGoOn: break;
        case WakeChoice::Look::kStop: watching_ = false; break;
    }
}

void NativeBackend::run_all() {
    const std::lock_guard running(running_);
    while (const auto job = next_job()) perform(*job);
    const bool aborted = [this] {
        const QueueLock lock(*this);
        return std::exchange(aborted_, false);
    }();
    if (!aborted || failure_) return;
    if (const auto failure = node_.failure()) fail(*failure, node_.spoiled_after());  // for other nodes
}

}  // namespace ddp::detail
