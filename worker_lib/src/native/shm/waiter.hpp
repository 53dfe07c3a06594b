#pragma once
// Waiter: waits in collectives for memory that a peer writes, and wakes peers that wait there (for sends and receives:
// p2p::Sleeper). It spins, then yields, then sleeps on a futex. If ranks share cores, it yields at once to a peer that
// needs this core, and only then: a switch to a process that waits as well takes longer than the wait.
//
// A sleeper sets `asleep` and looks once more before it sleeps; a waker changes the memory and then looks at `asleep`.
// Each has a fence between its two steps, so at least one of them sees the other (Dekker). Sleep is rare and waking is
// not, so the fence is asymmetric if the kernel can do that (membarrier): the sleeper executes it for all wakers
// too. A waker's own fence would wait until its change has reached the peer's core, which takes as long as a small
// operation.

#include <chrono>
#include <cstdint>
#include <vector>

#include "common/clock.hpp"
#include "worker_lib/src/native/shm/control.hpp"

namespace ddp::detail {

/// Registers this process for fences that other processes execute. Returns false if the kernel cannot do that.
[[nodiscard]] bool allow_remote_fences();

/// Which side executes a waker's fence.
enum class WakerFence : std::uint8_t { kItself, kSleeper };

/// Orders a change for which a peer may wait before the look at whether that peer sleeps.
inline void fence_before_wake(WakerFence by) {
    if (by == WakerFence::kSleeper) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
        std::atomic_thread_fence(std::memory_order_seq_cst);
    }
}

/// Waits on behalf of one rank, whose Control page it refers to. The thread that runs the group's operations waits; any
/// thread may wake.
class Waiter {
public:
    /// Maximum sleep: a waiter looks this often for deadlines and for processes that ended.
    static constexpr auto kNap = std::chrono::milliseconds(50);

    /// oversubscribed: ranks of the node share cores, so a waiter yields early. `fence` may be kSleeper only if all of
    /// them have allowed remote fences.
    Waiter(Control& own, bool oversubscribed, WakerFence fence);

    [[nodiscard]] bool oversubscribed() const { return oversubscribed_; }

    /// Returns when ready() is true. ready() may read values that peers store before they call fence() and wake().
    /// check() is called after every sleep, and may end the wait by throwing. needed() returns whether a peer that this
    /// rank waits for needs its core; it is called only if oversubscribed().
    template <typename Ready, typename Needed, typename Check>
    void wait(Ready ready, Needed needed, Check check) const {
        auto enough = ddprun::TimePoint::max();
        for (int i = 0; i < kYields; ++i) {
            if (!oversubscribed_ || !needed()) {
                for (int j = 0; j < kPauses; ++j) {
                    if (ready()) return;
                    pause();
                }
            }
            if (ready()) return;
            yield();
            const auto now = ddprun::Clock::now();
            if (i == 0) enough = now + kYielding;
            if (now > enough) break;
        }
        const Asleep asleep(*this);
        while (!ready()) {
            nap(ready, asleep.nap());
            if (ready()) return;
            check();
        }
    }

    /// Returns whether ready() becomes true within a moment, as it does if peers arrive at the same time. If peers need
    /// this core, the moment is long enough for each to run for a short time.
    template <typename Ready, typename Needed>
    [[nodiscard]] bool glance(Ready ready, Needed needed) const {
        if (!oversubscribed_) return spin(ready);
        if (ready()) return true;
        const auto enough = ddprun::Clock::now() + kGlancing;
        do {
            if (!needed()) {
                if (spin(ready)) return true;
            } else {
                yield();
                if (ready()) return true;
            }
        } while (ddprun::Clock::now() < enough);
        return false;
    }

    /// Call it between a change for which peers may wait, and wake().
    void fence() const { fence_before_wake(fence_); }
    [[nodiscard]] WakerFence waker_fence() const { return fence_; }
    /// Executes a fence in all threads that may wake this rank, for code that sleeps on something else. Returns false
    /// if that is not possible.
    [[nodiscard]] bool fence_wakers() const { return fence_ == WakerFence::kSleeper && fence_everywhere(); }
    /// Wakes `peer` if it sleeps. Call it after the change for which it may wait, and after fence().
    static void wake(Control& peer) {
        if (peer.asleep.load(std::memory_order_seq_cst) != 0) wake_sleeper(peer);
    }

    static void pause();
    static void yield();

private:
    static constexpr int kYields = 200;
    /// The first looks of spin() have no pause between them, because a store on its way arrives within the time of one.
    static constexpr int kWithoutPause = 8;
    /// Time for several switches between ranks that wait as well; less than the time slice of one that computes.
    static constexpr auto kGlancing = std::chrono::microseconds(20);
    /// Limits the yields in time: on a busy machine each lasts for the time slices of others.
    static constexpr auto kYielding = std::chrono::milliseconds(10);

    /// Announces that this rank sleeps, from before its first sleep until the wait is over. One fence is enough for all
    /// its sleeps; it interrupts every core that runs a rank.
    class Asleep {
    public:
        explicit Asleep(const Waiter& waiter) : own_(waiter.own_) {
            own_.asleep.store(1, std::memory_order_seq_cst);
            if (waiter.fence_ == WakerFence::kSleeper && !fence_everywhere()) nap_ = kUnfencedNap;
        }
        ~Asleep() { own_.asleep.store(0, std::memory_order_relaxed); }
        Asleep(const Asleep&) = delete;
        Asleep& operator=(const Asleep&) = delete;
        [[nodiscard]] std::chrono::nanoseconds nap() const { return nap_; }

    private:
        /// Maximum sleep if the fence failed, so that a waker may have missed `asleep`.
        static constexpr auto kUnfencedNap = std::chrono::milliseconds(1);
        Control& own_;
        std::chrono::nanoseconds nap_ = kNap;
    };

    template <typename Ready>
    [[nodiscard]] static bool spin(Ready& ready) {
        for (int i = 0; i < kPauses; ++i) {
            if (ready()) return true;
            if (i >= kWithoutPause) pause();
        }
        return ready();
    }

    template <typename Ready>
    void nap(Ready ready, std::chrono::nanoseconds longest) const {
        const std::uint32_t seen = own_.wake.load(std::memory_order_seq_cst);
        if (!ready()) sleep(own_.wake, seen, longest);
    }

    [[nodiscard]] static bool fence_everywhere();
    static void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::nanoseconds longest);
    static void wake_sleeper(Control& peer);

    /// Pauses between two yields. They are few, because a trainer's thread and the progress thread of a rank may share
    /// its core.
    static constexpr int kPauses = 40;

    Control& own_;
    const bool oversubscribed_;
    const WakerFence fence_;
};

}  // namespace ddp::detail
