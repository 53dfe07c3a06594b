#pragma once
// Sleeper: lets a rank sleep until a peer has something of a send or receive for it, and wakes neighbours that sleep
// there (in collectives: Waiter). P2p owns it. Any thread may make the calls that are marked so. All others are made
// under P2p's lock by the thread that makes progress.
//
// A peer changes a ring (`written`, or `read` for a peer that is starved) and then looks at our `asleep` (or
// `starved`); we set `asleep` and then look at the rings. With a fence between the two steps of each, at least one of
// the two sees the other. If the kernel has membarrier(2), the sleeper executes the peers' fence between two looks at
// the rings. The second look sees all changes of a peer before that fence. After it the peer sees `asleep`, and also
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

    /// Announces that this rank is about to sleep. Before sleep(), the caller looks at the rings, calls fence_wakers(),
    /// and looks again if that returns true: only then is each change either seen or rung for.
    void announce_sleep() REQUIRES(kRunning);
    /// Executes the neighbours' fences. Returns whether the caller has to look at the rings again.
    [[nodiscard]] bool fence_wakers() REQUIRES(kRunning);
    void announce_wakefulness() REQUIRES(kRunning) { own_.asleep.store(0, std::memory_order_relaxed); }
    /// Empties the doorbell. Call it before the look for the changes that may have rung it.
    void silence() REQUIRES(kRunning) { doorbell_.silence(); }
    /// Returns the maximum sleep while a work is in flight.
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
