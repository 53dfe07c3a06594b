#pragma once
// Sleeper: how a rank sleeps until a peer has something for it, and how it wakes neighbours that sleep. Any
// thread may call interrupt() and sleep(), all else is called by the thread that makes progress.
//
// A peer changes a ring (`written`, or `read` for a peer that is starved) and then looks at our `asleep` (or
// `starved`); we set `asleep` and then look at the rings. With a fence between the two steps of each, at least one of
// the two sees the other. Where the kernel can, the sleeper has the peers' fence carried out between two looks at the
// rings: the second one sees what a peer did before that fence, and after it the peer sees `asleep`, and also
// `starved`, which the first look sets.

#include <atomic>
#include <chrono>
#include <string_view>

#include "worker_lib/src/native/p2p/running.hpp"
#include "worker_lib/src/native/shm/doorbell.hpp"
#include "worker_lib/src/native/shm/message_ring.hpp"
#include "worker_lib/src/native/shm/waiter.hpp"

namespace ddp::detail::p2p {

class Sleeper {
public:
    /// Throws Error{System}.
    Sleeper(PostPage& own, const Waiter& waiter);

    /// Ends the sleep of this rank's thread or waiter. Any thread.
    void interrupt() { doorbell_.ring_own(); }
    /// Rings a neighbour if it sleeps. Call it after the change that concerns it.
    void wake(PostPage& neighbour) const REQUIRES(kRunning) {
        fence_before_wake(waiter_.waker_fence());
        if (neighbour.asleep.load(std::memory_order_seq_cst) != 0) ring(neighbour);
    }
    /// Sleeps until the doorbell rings, `network_fd` (-1: none) is readable or the timeout is over (-1: never). Returns
    /// whether one of the former happened. Any thread, without the lock.
    [[nodiscard]] bool sleep(int timeout_ms, int network_fd) const;

    /// Says that we sleep: from now on neighbours ring. The rings have to be looked at once more.
    void announce_sleep() REQUIRES(kRunning);
    /// Has the neighbours' fences carried out. Returns whether the rings have to be looked at again.
    [[nodiscard]] bool fence_wakers() REQUIRES(kRunning);
    void announce_wakefulness() REQUIRES(kRunning) { own_.asleep.store(0, std::memory_order_relaxed); }
    /// Empties the doorbell. Look after it at what it was rung for.
    void silence() REQUIRES(kRunning) { doorbell_.silence(); }
    /// Returns for how long to sleep at most while something is under way.
    [[nodiscard]] int nap_ms() const REQUIRES(kRunning) { return unfenced_ ? kUnfencedNapMs : kNapMs; }

    static constexpr int kNapMs =
        static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(Waiter::kNap).count());

private:
    static constexpr int kUnfencedNapMs = 1;
    void ring(PostPage& neighbour) const;

    PostPage& own_;
    const Waiter& waiter_;
    Doorbell doorbell_;
    bool unfenced_ GUARDED_BY(kRunning) = false;  ///< neighbours may have overlooked that we sleep
};

}  // namespace ddp::detail::p2p
