#include "worker_lib/src/native/backend/job_queue.hpp"

#include <algorithm>
#include <utility>

namespace ddp::detail {

namespace {

bool overlap(const Buffer& a, const Buffer& b) {
    const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data);
    const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data);
    return begin_a < begin_b + b.bytes() && begin_b < begin_a + a.bytes();
}

}  // namespace

class SCOPED_CAPABILITY JobQueue::Update {
public:
    explicit Update(JobQueue& queue) ACQUIRE(queue.mutex_) : queue_(queue) { queue_.mutex_.lock(); }
    ~Update() RELEASE() {
        const bool ending = queue_.stopping_ || queue_.failed_;
        const bool idle = queue_.jobs_.empty() && !queue_.wanted_ && !ending;
        queue_.idle_.store(idle, std::memory_order_relaxed);
        queue_.callers_wait_.store(!queue_.choice_.eager(), std::memory_order_relaxed);
        queue_.mutex_.unlock();
    }
    Update(const Update&) = delete;
    Update& operator=(const Update&) = delete;

private:
    JobQueue& queue_;
};

bool JobQueue::may_announce_behind(const Operation& operation) {
    const ddprun::Lock lock(mutex_);
    if (wanted_ || stopping_ || failed_) return false;
    return std::ranges::all_of(jobs_, [&](const Job& job) {
        return job.step != Step::kNone && !overlap(job.operation.result(), operation.buffer);
    });
}

void JobQueue::push(Job job) {
    const Update update(*this);
    const bool others = !jobs_.empty();
    // A job is announced early only behind announced ones, so if the first one has served its peers, all have.
    const bool all_served = job.peers_served && (!others || jobs_.front().peers_served);
    jobs_.push_back(std::move(job));
    if (all_served) return;
    if (choice_.wake(others)) {
        wake_thread();
    } else if (!std::exchange(watching_, true)) {
        changed_.notify_one();
    }
}

std::optional<Job> JobQueue::next(ddprun::TimePoint latest) {
    const Update update(*this);
    if (jobs_.empty()) {
        wanted_ = false;
        return std::nullopt;
    }
    if (jobs_.front().operation.deadline > latest) {
        wake_thread();
        return std::nullopt;
    }
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    if (latest != ddprun::TimePoint::max() && !job.peers_served) choice_.claimed();
    return job;
}

void JobQueue::wake() {
    const Update update(*this);
    if (!jobs_.empty()) wake_thread();
}

void JobQueue::wake_thread() {
    wanted_ = true;
    changed_.notify_one();
}

void JobQueue::report_failure() {
    {
        const Update update(*this);
        failed_ = true;
    }
    changed_.notify_one();
}

void JobQueue::stop() {
    {
        const Update update(*this);
        stopping_ = true;
    }
    changed_.notify_one();
}

bool JobQueue::take_failure() {
    const Update update(*this);
    return std::exchange(failed_, false);
}

bool JobQueue::wait() {
    const Update update(*this);
    while (!wanted_ && !stopping_ && !failed_) {
        if (!watching_) {
            changed_.wait(mutex_);
        } else if (!changed_.wait_for(mutex_, WakeChoice::kInterval)) {
            poll_jobs();
        }
    }
    return !stopping_;
}

void JobQueue::poll_jobs() {
    const Job* const first = jobs_.empty() ? nullptr : &jobs_.front();
    switch (choice_.look(first != nullptr && !first->peers_served ? first->operation.seq : 0)) {
        case WakeChoice::Look::kWake: wanted_ = true; break;
        case WakeChoice::Look::kGoOn: break;
        case WakeChoice::Look::kStop: watching_ = false; break;
    }
}

}  // namespace ddp::detail
