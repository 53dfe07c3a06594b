#include "worker_lib/src/tuning/light_mutex.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace ddp::detail {

namespace {

long private_membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

bool LightMutex::waiters_can_fence() {
    static const bool can = private_membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
    return can;
}

void LightMutex::wait_and_lock() {
    waiting_.fetch_add(1, std::memory_order_seq_cst);
    // A trainer may have forbidden itself such calls meanwhile (seccomp). unlock() may then overlook this waiter, which
    // therefore polls.
    const bool noticed = !waiters_fence_ || private_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
    while (!try_lock()) {
        const std::uintptr_t holder = holder_.load(std::memory_order_seq_cst);
        if (holder == 0) continue;
        if (noticed) {
            holder_.wait(holder, std::memory_order_relaxed);
        } else {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    waiting_.fetch_sub(1, std::memory_order_relaxed);
}

void LightMutex::wake() {
    // notify_all() looks for waiters in a counter of its own. The fence ensures that it finds there each waiter that
    // has seen this thread as the holder.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    holder_.notify_all();
}

}  // namespace ddp::detail
