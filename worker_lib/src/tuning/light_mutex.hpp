#pragma once
// LightMutex: a mutex for small operations, each of which locks two of them. lock() calls no function if the mutex is
// free, and unlock() is a plain store: with an exchange, which waits until all earlier stores have reached the peers'
// caches, small operations take longer (docs/benchmarks/decisions.md#light-mutex).
//
// The unlocking thread stores "free" and then looks for waiters. A waiter counts itself and then looks whether the
// mutex is free. Each needs a fence between its two steps, so that at least one of them sees the other (Dekker's
// algorithm). The waiter has time, so it executes the unlocking thread's fence as well, by membarrier(2), if the kernel
// has it (asymmetric fences).

#include <atomic>
#include <cstdint>

#include "common/thread_annotations.hpp"

namespace ddp::detail {

class CAPABILITY("mutex") LightMutex {
public:
    LightMutex() : LightMutex(waiters_can_fence()) {}
    /// waiters_fence   false: unlock() has a fence of its own
    explicit LightMutex(bool waiters_fence) : waiters_fence_(waiters_fence && waiters_can_fence()) {}
    LightMutex(const LightMutex&) = delete;
    LightMutex& operator=(const LightMutex&) = delete;

    void lock() ACQUIRE() {
        if (!try_lock()) wait_and_lock();
    }
    /// Returns false if a thread holds the mutex, the calling one included.
    [[nodiscard]] bool try_lock() TRY_ACQUIRE(true) {
        std::uintptr_t free = 0;
        return holder_.compare_exchange_strong(free, self(), std::memory_order_acquire, std::memory_order_relaxed);
    }
    void unlock() RELEASE() {
        holder_.store(0, std::memory_order_release);
        if (waiters_fence_) {
            std::atomic_signal_fence(std::memory_order_seq_cst);
        } else {
            std::atomic_thread_fence(std::memory_order_seq_cst);
        }
        if (waiting_.load(std::memory_order_relaxed) != 0) wake();
    }

private:
    /// Returns an address that no other thread has.
    static std::uintptr_t self() {
        static thread_local char here = 0;
        return reinterpret_cast<std::uintptr_t>(&here);
    }
    /// Returns whether the kernel lets a thread execute fences in the other threads of its process.
    static bool waiters_can_fence();
    void wait_and_lock() ACQUIRE();
    void wake();

    std::atomic<std::uintptr_t> holder_{0};
    std::atomic<int> waiting_{0};
    const bool waiters_fence_;
};

}  // namespace ddp::detail
