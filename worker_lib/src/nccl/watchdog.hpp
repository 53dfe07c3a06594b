#pragma once
// Watchdog: the clock of all device queues of this process. Its thread, "ddp-watchdog", has them look for deadlines,
// lost peers and aborts that do not return. It makes no call of CUDA or NCCL, so no stuck device can stop it. Any
// thread may call it.

#include <memory>
#include <thread>
#include <vector>

#include "common/mutex.hpp"

namespace ddp::detail {

class DeviceQueue;

class Watchdog {
public:
    /// Returns the one of this process, which lives as long as a queue uses it. Throws Error{System} when there is no
    /// thread.
    [[nodiscard]] static std::shared_ptr<Watchdog> of_process();
    Watchdog();
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    void add(DeviceQueue& queue) EXCLUDES(queues_mutex_);
    /// Afterwards the queue is not called any more. The caller holds no lock of it.
    void remove(const DeviceQueue& queue) EXCLUDES(queues_mutex_);
    /// Has all queues look at once. The caller may hold the lock of one.
    void wake() EXCLUDES(mutex_);

private:
    void run() EXCLUDES(queues_mutex_, mutex_);

    ddprun::Mutex queues_mutex_;  // taken before those of the queues, never after
    std::vector<DeviceQueue*> queues_ GUARDED_BY(queues_mutex_);
    ddprun::Mutex mutex_;  // the innermost
    ddprun::Condition changed_;
    bool woken_ GUARDED_BY(mutex_) = false;
    bool stop_ GUARDED_BY(mutex_) = false;
    std::thread thread_;  // last: it uses the above
};

}  // namespace ddp::detail
