// How far apart the first two CPUs are: nanoseconds for a word to go from one to the other and back. Virtual CPUs may
// share a cache at one moment and not at the next, and everything in shared memory takes another time then.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

namespace {

constexpr int kRounds = 20'000;
constexpr int kBatch = 500;

struct alignas(128) Word {
    std::atomic<int> value{0};
};

void run_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);  // where it is not allowed, the kernel chooses
}

}  // namespace

int main() {
    Word there;
    Word back;
    std::thread other([&] {
        run_on(1);
        for (int i = 1; i <= kRounds; ++i) {
            while (there.value.load(std::memory_order_acquire) != i) {
            }
            back.value.store(i, std::memory_order_release);
        }
    });
    run_on(0);
    // The best of several: whatever else runs here makes a few of them long, and says nothing about the caches.
    double best = 1e9;
    auto began = std::chrono::steady_clock::now();
    for (int i = 1; i <= kRounds; ++i) {
        there.value.store(i, std::memory_order_release);
        while (back.value.load(std::memory_order_acquire) != i) {
        }
        if (i % kBatch != 0) continue;
        const auto now = std::chrono::steady_clock::now();
        best = std::min(best, std::chrono::duration<double, std::nano>(now - began).count() / kBatch);
        began = now;
    }
    other.join();
    std::printf("%.1f\n", best);
}
