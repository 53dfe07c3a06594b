#pragma once
// Waiter: how a rank waits for memory that a peer writes, and how it wakes peers that wait. Spin, then yield, then
// sleep on a futex. Where ranks share cores it yields at once to a peer that needs this core, and only to such: a
// switch to one that waits, too, and back again takes longer than what it waits for.
//
// A sleeper sets `asleep` and looks once more before it sleeps; a waker changes the memory and then looks at `asleep`.
// Between its two steps each has a fence, so at least one of the two sees the other. Sleep is rare and wakers are in a
// hurry: where the kernel can (membarrier), the sleeper has the fence of the wakers carried out, too, and theirs costs
// nothing. A fence of their own has to wait until the change has reached the peer's core, as long as a small operation.

#include <chrono>
#include <cstdint>
#include <vector>

#include "common/clock.hpp"
#include "worker_lib/src/native/control.hpp"

namespace ddp::detail {

/// Asks the kernel to let other processes carry out fences in this one. False: it cannot.
[[nodiscard]] bool allow_remote_fences();

/// Who carries out a waker's fence.
enum class WakerFence : std::uint8_t { kItself, kSleeper };

/// Between a change for which a peer may wait, and the look at whether it sleeps.
inline void fence_before_wake(WakerFence by) {
    if (by == WakerFence::kSleeper) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
        std::atomic_thread_fence(std::memory_order_seq_cst);
    }
}

class Waiter {
public:
    /// The longest sleep: so often a waiter looks after deadlines and the dead.
    static constexpr auto kNap = std::chrono::milliseconds(50);

    /// crowded: ranks of the node share cores. kSleeper: only where all of them allow it.
    Waiter(Control& own, bool crowded, WakerFence fence);

    [[nodiscard]] bool crowded() const { return crowded_; }

    /// Returns when ready() says so. Calls check() after every nap; it ends the wait by throwing. ready() may look at
    /// what peers have stored before they called fence() and wake(). needed(): whether a peer that we wait for needs
    /// our core; asked only if it is crowded.
    template <typename Ready, typename Needed, typename Check>
    void wait(Ready ready, Needed needed, Check check) const {
        auto enough = ddprun::TimePoint::max();
        for (int i = 0; i < kYields; ++i) {
            if (!crowded_ || !needed()) {
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

    /// Whether ready() says so within a moment, as it does where peers come at the same time: a microsecond or two, and
    /// where peers need this core, until each has had a short turn.
    template <typename Ready, typename Needed>
    [[nodiscard]] bool glance(Ready ready, Needed needed) const {
        if (!crowded_) return spin(ready);
        if (ready()) return true;
        const auto enough = ddprun::Clock::now() + kTurns;
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

    /// Between a change for which peers may wait, and wake().
    void fence() const { fence_before_wake(fence_); }
    [[nodiscard]] WakerFence waker_fence() const { return fence_; }
    /// A fence in all threads that may wake us, for who sleeps elsewhere than here. False: they are not fenced.
    [[nodiscard]] bool fence_wakers() const { return fence_ == WakerFence::kSleeper && fence_everywhere(); }
    /// Call after the change for which `peer` may wait, and fence().
    static void wake(Control& peer) {
        if (peer.asleep.load(std::memory_order_seq_cst) != 0) wake_sleeper(peer);
    }

    static void pause();
    static void yield();

private:
    static constexpr int kYields = 200;
    /// Looks of spin(): what is on its way comes between two pauses.
    static constexpr int kWithoutPause = 8;
    /// Several switches between ranks that wait, too; less than the time slice of one that computes.
    static constexpr auto kTurns = std::chrono::microseconds(20);
    /// On a busy machine each yield lasts for the others' time slices: 200 took seconds, past deadlines.
    static constexpr auto kYielding = std::chrono::milliseconds(10);

    /// From before the first nap of a wait until it is over: one fence is enough for all of them. It interrupts all
    /// cores that run ranks.
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
        /// Where a waker may have overlooked us.
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
        const std::uint32_t ticket = own_.wake.load(std::memory_order_seq_cst);
        if (!ready()) sleep(own_.wake, ticket, longest);
    }

    [[nodiscard]] static bool fence_everywhere();
    static void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::nanoseconds longest);
    static void wake_sleeper(Control& peer);

    /// Between two yields: 1 to 3 µs, depending on what a pause takes. Measured with 2 ranks on 2 cores, whose
    /// trainers' threads take turns with ours: 2,000 in one go made 8 bytes take 120 µs.
    static constexpr int kPauses = 40;

    Control& own_;
    const bool crowded_;
    const WakerFence fence_;
};

}  // namespace ddp::detail
