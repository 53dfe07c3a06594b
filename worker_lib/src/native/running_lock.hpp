#pragma once
// RunningLock: a mutex that a thread may try to lock while it holds it: then it just fails. A callback of a work runs
// on the thread that runs the group's operations, and may submit the next one.

#include <atomic>
#include <mutex>
#include <thread>

namespace ddp::detail {

class RunningLock {
public:
    void lock() {
        mutex_.lock();
        holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    }
    [[nodiscard]] bool try_lock() {
        // Only the thread itself can have stored its own id.
        if (holder_.load(std::memory_order_relaxed) == std::this_thread::get_id() || !mutex_.try_lock()) return false;
        holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
        return true;
    }
    void unlock() {
        holder_.store({}, std::memory_order_relaxed);
        mutex_.unlock();
    }

private:
    std::mutex mutex_;
    std::atomic<std::thread::id> holder_{};
};

}  // namespace ddp::detail
