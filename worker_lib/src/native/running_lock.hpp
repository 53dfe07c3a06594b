#pragma once
// RunningLock: a mutex that a thread may try to lock while it holds it: then it just fails. A callback of a work runs
// on the thread that runs the group's operations, and may submit the next one. Small operations take it each time, so
// it is one word, and nobody is called.

#include <atomic>
#include <cstdint>

namespace ddp::detail {

class RunningLock {
public:
    void lock() {
        while (!try_lock()) {
            waiting_.fetch_add(1, std::memory_order_seq_cst);
            const std::uintptr_t holder = holder_.load(std::memory_order_seq_cst);
            if (holder != 0) holder_.wait(holder, std::memory_order_relaxed);
            waiting_.fetch_sub(1, std::memory_order_relaxed);
        }
    }
    [[nodiscard]] bool try_lock() {
        std::uintptr_t nobody = 0;
        return holder_.compare_exchange_strong(nobody, self(), std::memory_order_acquire, std::memory_order_relaxed);
    }
    void unlock() {
        holder_.exchange(0, std::memory_order_seq_cst);
        if (waiting_.load(std::memory_order_seq_cst) != 0) holder_.notify_all();
    }

private:
    /// An address that no other thread has.
    static std::uintptr_t self() {
        static thread_local char here = 0;
        return reinterpret_cast<std::uintptr_t>(&here);
    }

    std::atomic<std::uintptr_t> holder_{0};
    std::atomic<int> waiting_{0};
};

}  // namespace ddp::detail
