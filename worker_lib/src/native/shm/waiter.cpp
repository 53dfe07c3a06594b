#include "worker_lib/src/native/shm/waiter.hpp"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace ddp::detail {

namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t),
              "the kernel sees the atomic as a plain word");

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
    // Not FUTEX_PRIVATE: the word is shared with other processes.
    return ::syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

long global_membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

bool allow_remote_fences() {
    static const bool allowed = global_membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
    return allowed;
}

Waiter::Waiter(Control& own, bool oversubscribed, WakerFence fence)
    : own_(own), oversubscribed_(oversubscribed), fence_(fence) {}

void Waiter::pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
}

void Waiter::yield() { ::sched_yield(); }

/// Executes a fence in all running threads of the processes that called allow_remote_fences(). A thread that does not
/// run passed a fence when it was descheduled. Returns false if the kernel refuses; Asleep then sleeps for a shorter
/// time.
bool Waiter::fence_everywhere() { return global_membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0; }

void Waiter::sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::nanoseconds longest) {
    const timespec timeout{.tv_sec = 0, .tv_nsec = static_cast<long>(longest.count())};
    // The result does not matter: woken, timed out, interrupted or not equal, the caller looks again.
    futex(word, FUTEX_WAIT, expected, &timeout);
}

void Waiter::wake_sleeper(Control& peer) {
    peer.wake.fetch_add(1, std::memory_order_seq_cst);
    futex(peer.wake, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace ddp::detail
