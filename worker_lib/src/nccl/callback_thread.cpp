#include "worker_lib/src/nccl/callback_thread.hpp"

#include <utility>

#include "worker_lib/src/util/signal_masked_thread.hpp"

namespace ddp::detail {

CallbackThread::CallbackThread(std::shared_ptr<GroupDevice> device, std::function<void(const EndedWork&)> run,
                               std::function<void()> on_idle)
    : device_(std::move(device)), run_(std::move(run)), on_idle_(std::move(on_idle)) {
    thread_ = start_signal_masked_thread("ddp-callbacks", [this] { run_all(); });
}

CallbackThread::~CallbackThread() {
    {
        const ddprun::Lock lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void CallbackThread::add(EndedWork ended) {
    {
        const ddprun::Lock lock(mutex_);
        ended_.push_back(std::move(ended));
    }
    changed_.notify_all();
}

bool CallbackThread::is_idle() const {
    const ddprun::Lock lock(mutex_);
    return ended_.empty() && !in_callback_;
}

void CallbackThread::run_all() {
    (void)device_->begin_thread();
    const ddprun::Lock lock(mutex_);
    for (;;) {
        while (!stop_ && ended_.empty()) changed_.wait(mutex_);
        if (ended_.empty()) return;
        EndedWork next = std::move(ended_.front());
        ended_.pop_front();
        in_callback_ = true;
        mutex_.unlock();
        run_(next);
        next = {};  // the last owner of a work gives its event back
        mutex_.lock();
        in_callback_ = false;
        if (!ended_.empty()) continue;
        mutex_.unlock();
        on_idle_();
        mutex_.lock();
    }
}

}  // namespace ddp::detail
