#include "worker_lib/src/nccl/watchdog.hpp"

#include <algorithm>
#include <optional>

#include "worker_lib/src/nccl/device_queue.hpp"
#include "worker_lib/src/util/signal_masked_thread.hpp"

namespace ddp::detail {

std::shared_ptr<Watchdog> Watchdog::of_process() {
    static ddprun::Mutex& mutex = *new ddprun::Mutex;  // never destroyed: a program may end groups at its exit
    static std::weak_ptr<Watchdog>& made = *new std::weak_ptr<Watchdog>;
    const ddprun::Lock lock(mutex);
    auto watchdog = made.lock();
    if (watchdog == nullptr) made = watchdog = std::make_shared<Watchdog>();
    return watchdog;
}

Watchdog::Watchdog() {
    thread_ = start_signal_masked_thread("ddp-watchdog", [this] { run(); });
}

Watchdog::~Watchdog() {
    {
        const ddprun::Lock lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Watchdog::add(DeviceQueue& queue) {
    const ddprun::Lock lock(queues_mutex_);
    queues_.push_back(&queue);
}

void Watchdog::remove(const DeviceQueue& queue) {
    const ddprun::Lock lock(queues_mutex_);
    std::erase(queues_, &queue);
}

void Watchdog::wake() {
    {
        const ddprun::Lock lock(mutex_);
        woken_ = true;
    }
    changed_.notify_all();
}

void Watchdog::run() {
    for (;;) {
        std::optional<ddprun::TimePoint> next;
        {
            const ddprun::Lock lock(queues_mutex_);
            for (DeviceQueue* const queue : queues_) {
                const auto wanted = queue->look();
                if (wanted && (!next || *wanted < *next)) next = wanted;
            }
        }
        const ddprun::Lock lock(mutex_);
        while (!stop_ && !woken_) {
            if (!next) {
                changed_.wait(mutex_);
            } else if (!changed_.wait_until(mutex_, *next)) {
                break;
            }
        }
        woken_ = false;
        if (stop_) return;
    }
}

}  // namespace ddp::detail
