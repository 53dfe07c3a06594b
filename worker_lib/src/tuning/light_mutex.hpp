#pragma once
// LightMutex: a mutex for small operations, which take two of them each time. Nothing is called, and unlock() is a
// plain store: an exchange would have to wait until all that was stored before it has reached the peers' caches, as
// long as the operation itself. A thread may try to lock while it holds it: then it just fails.
//
// An unlocker stores that it is free and then looks for waiters; a waiter counts itself and then looks whether it is
// free. Between its two steps each needs a fence, so that at least one of the two sees the other. Who waits has time:
// it has the fence of the unlocker carried out, too (membarrier), where the kernel can.

#include <atomic>
#include <cstdint>

namespace ddp::detail {

class LightMutex {
public:
    LightMutex() : LightMutex(waiters_can_fence()) {}
    /// waiters_fence   false: unlock() has a fence of its own
    explicit LightMutex(bool waiters_fence) : fences_for_us_(waiters_fence && waiters_can_fence()) {}
    LightMutex(const LightMutex&) = delete;
    LightMutex& operator=(const LightMutex&) = delete;

    void lock() {
        if (!try_lock()) wait_and_lock();
    }
    [[nodiscard]] bool try_lock() {
        std::uintptr_t nobody = 0;
        return holder_.compare_exchange_strong(nobody, self(), std::memory_order_acquire, std::memory_order_relaxed);
    }
    void unlock() {
        holder_.store(0, std::memory_order_release);
        if (fences_for_us_) {
            std::atomic_signal_fence(std::memory_order_seq_cst);
        } else {
            std::atomic_thread_fence(std::memory_order_seq_cst);
        }
        if (waiting_.load(std::memory_order_relaxed) != 0) wake();
    }

private:
    /// An address that no other thread has.
    static std::uintptr_t self() {
        static thread_local char here = 0;
        return reinterpret_cast<std::uintptr_t>(&here);
    }
    /// Whether the kernel lets a thread carry out fences in the others of its process.
    static bool waiters_can_fence();
    void wait_and_lock();
    void wake();

    std::atomic<std::uintptr_t> holder_{0};
    std::atomic<int> waiting_{0};
    const bool fences_for_us_;
};

}  // namespace ddp::detail
