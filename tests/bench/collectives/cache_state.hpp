#pragma once
// How far apart the first two CPUs are: nanoseconds for a word to go from one to the other and back. Virtual CPUs may
// share a cache at one moment and not at the next, and everything in shared memory takes another time then. Standard
// library and pthreads only.

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace ddprun::bench {

struct alignas(128) CacheWord {
    std::atomic<int> value{0};
};

inline void run_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);  // where it is not allowed, the kernel chooses
}

/// Takes about `rounds` times the result. Its threads are its own, so the caller stays where it may run. One CPU is
/// near itself: 0.
inline double cache_round_trip_ns(int rounds = 8000) {
    if (std::thread::hardware_concurrency() < 2) return 0;
    constexpr int kBatch = 500;
    CacheWord there;
    CacheWord back;
    // The best of several: whatever else runs here makes a few of them long, and says nothing about the caches.
    double best = 1e9;
    std::thread one([&] {
        run_on(0);
        auto began = std::chrono::steady_clock::now();
        for (int i = 1; i <= rounds; ++i) {
            there.value.store(i, std::memory_order_release);
            while (back.value.load(std::memory_order_acquire) != i) {
            }
            if (i % kBatch != 0) continue;
            const auto now = std::chrono::steady_clock::now();
            best = std::min(best, std::chrono::duration<double, std::nano>(now - began).count() / kBatch);
            began = now;
        }
    });
    std::thread other([&] {
        run_on(1);
        for (int i = 1; i <= rounds; ++i) {
            while (there.value.load(std::memory_order_acquire) != i) {
            }
            back.value.store(i, std::memory_order_release);
        }
    });
    one.join();
    other.join();
    return best;
}

}  // namespace ddprun::bench
