#include "worker_lib/src/nccl/callback_thread.hpp"

#include <utility>

namespace ddp::detail {

CallbackThread::CallbackThread(std::shared_ptr<GroupDevice> device, std::function<void(const EndedWork&)> complete,
                               std::function<void()> on_idle)
    : device_(std::move(device)), complete_(std::move(complete)), on_idle_(std::move(on_idle)) {
    thread_ = std::thread([this] { run(); });
}

CallbackThread::~CallbackThread() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void CallbackThread::add(EndedWork ended) {
    {
        const std::lock_guard lock(mutex_);
        ended_.push_back(std::move(ended));
    }
    changed_.notify_all();
}

bool CallbackThread::is_idle() const {
    const std::lock_guard lock(mutex_);
    return ended_.empty() && !in_callback_;
}

void CallbackThread::run() {
    (void)begin_thread(device_->cuda(), device_->index());
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return stop_ || !ended_.empty(); });
        if (ended_.empty()) return;
        EndedWork next = std::move(ended_.front());
        ended_.pop_front();
        in_callback_ = true;
        lock.unlock();
        complete_(next);
        next = {};  // the last owner of a work gives its event back
        lock.lock();
        in_callback_ = false;
        if (!ended_.empty()) continue;
        lock.unlock();
        on_idle_();
        lock.lock();
    }
}

}  // namespace ddp::detail
