// Who moves sends and receives: a caller that waits for one, or the thread, and how they take turns at it.

#include <poll.h>

#include <array>
#include <chrono>
#include <utility>

#include "worker_lib/src/native/p2p.hpp"
#include "worker_lib/src/native/quiet_thread.hpp"
#include "worker_lib/src/native/waiter.hpp"

namespace ddp::detail {

namespace {

/// As Waiter spins, for the same reasons.
constexpr auto kSpinning = std::chrono::milliseconds(2);
/// Where something moves all the time, deadlines are looked after, too.
constexpr unsigned kTurnsBetweenLooks = 4096;
/// The same while each turn moves up to a MiB per peer; and what one does before others get the lock.
constexpr unsigned kMovesBetweenLooks = 32;
/// A look at a neighbour is a load; one at a connection is a system call.
constexpr unsigned kTurnsBetweenSockets = 8;
constexpr int kNapMs = static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(Waiter::kNap).count());
/// Where a peer may have overlooked that we sleep.
constexpr int kUnseenNapMs = 1;
/// So often the thread looks whether somebody waits, and after so many looks it sleeps longer.
constexpr int kTickMs = 1;
constexpr int kTicksBeforeNap = 50;
constexpr int kForEver = -1;

}  // namespace

/// Not for ever: others want the lock, and deadlines are looked after. True: there may be more to move.
bool P2p::move(Running& running) {
    for (unsigned turn = 0; turn < kMovesBetweenLooks; ++turn) {
        if (!guarded_pass()) return false;
        deliver(running);
    }
    look_around();
    return true;
}

void P2p::hurry() {
    Running running(running_, std::try_to_lock);
    if (!running) return;
    move(running) ? hand_over(running) : leave(running);
    start();
}

void P2p::help(const P2pWork& work) {
    if (helped_.exchange(true)) return;
    Running running(running_);
    if (!stopping_) page_.asleep.store(0, std::memory_order_relaxed);
    auto enough = ddprun::TimePoint::max();
    int idle = 0;
    bool moved = true;
    unsigned moves = 0;
    for (unsigned turn = 1; !stopping_; ++turn) {
        look_at_network_ = moved || turn % kTurnsBetweenSockets == 0;
        moved = guarded_pass();
        look_at_network_ = true;
        deliver(running);
        if (work.has_ended()) break;
        if (turn % kTurnsBetweenLooks == 0 || (moved && ++moves % kMovesBetweenLooks == 0)) look_around();
        if (moved) {
            idle = 0;
            enough = ddprun::TimePoint::max();
            continue;
        }
        if (idle++ < pauses_) {
            Waiter::pause();
            continue;
        }
        idle = 0;
        const auto now = ddprun::Clock::now();
        if (enough == ddprun::TimePoint::max()) enough = now + kSpinning;
        if (now < enough) {
            running.unlock();  // for those who want to submit
            Waiter::yield();
            running.lock();
            continue;
        }
        if (!settle() && done_.empty() && !failure_) (void)sleep(overlooked_ ? kUnseenNapMs : kNapMs, true);
        page_.asleep.store(0, std::memory_order_relaxed);
        bell_.silence();
        look_around();
    }
    helped_ = false;
    busy() || ready_ ? hand_over(running) : leave(running);
    start();
}

/// The thread. While waiters come and go it only looks in now and then, in short naps: so submit() need not say that
/// somebody sleeps, which would have peers wake a thread for what the waiter has taken long before.
void P2p::run() {
    int patience = kTickMs;
    int idle = 0;      // ticks with nothing to do
    int hindered = 0;  // ticks with somebody else at it
    bool failed = false;
    while (!stopping_) {
        const bool rung = sleep(patience, !failed && !helped_);
        Running running(running_, std::try_to_lock);
        if (!running && !rung) {
            if (++hindered <= kTicksBeforeNap) {
                patience = kTickMs;
                long_nap_ = false;
            } else {  // From now on who hands over rings. One may have done so just before: hence a last look.
                patience = long_nap_.exchange(true) ? kNapMs : 0;
                std::atomic_thread_fence(std::memory_order_seq_cst);  // see hand_over()
            }
            continue;
        }
        if (!running) running.lock();  // polling on would only find the same ring
        hindered = 0;
        bell_.silence();
        bool more = move(running);
        if (!more) look_around();
        const bool attended = helped_;
        if (!attended && !more) more = settle();
        failed = failure_.has_value();
        idle = busy() ? 0 : idle + 1;
        patience = kTickMs;
        if (idle > kTicksBeforeNap) patience = kForEver;
        const int nap = overlooked_ ? kUnseenNapMs : kNapMs;
        if (busy() && !attended) patience = more ? 0 : nap;
        long_nap_ = patience == kForEver || patience == kNapMs;
        leave(running);
        start();
    }
}

bool P2p::sleep(int patience_ms, bool with_network) const {
    std::array<pollfd, 2> waiting{{{.fd = bell_.fd(), .events = POLLIN, .revents = 0},
                                   {.fd = ready_ && with_network ? ready_->fd() : -1, .events = POLLIN, .revents = 0}}};
    return ::poll(waiting.data(), waiting.size(), patience_ms) > 0;  // interrupted: a nap cut short
}

/// Before we sleep: from now on peers ring when there is something for us. True: there is already.
///
/// A peer changes a lane (`written`, or `read` for who is starved) and then looks at our `asleep` (or `starved`); we
/// say that we sleep, and then look at the lanes. With a fence between the two steps of each one of the two sees the
/// other. Where the kernel can it is we who have the peer's carried out, between two looks: what the peer did before
/// that fence the second one sees, and behind it the peer sees what we have said, `starved` included, which the first
/// look says.
bool P2p::settle() {
    if (!busy()) return false;
    page_.asleep.store(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (guarded_pass()) return true;
    if (setup_.node.waiter().waker_fence() == WakerFence::kItself) return false;
    overlooked_ = !setup_.node.waiter().fence_wakers();
    return guarded_pass();
}

/// Ends works without the lock: their callbacks may send and receive.
void P2p::deliver(Running& running) {
    if (done_.empty()) return;
    leave(running);
    running.lock();
}

void P2p::complete(const std::vector<Done>& done) const {
    for (const Done& one : done) {
        one.work->complete(one.error, [&](std::string_view thrown) {
            if (setup_.on_thrown) setup_.on_thrown(*one.work, thrown);
        });
    }
}

/// The same, and does not take the lock again: somebody may sleep with it.
void P2p::leave(Running& running) {
    const auto done = std::exchange(done_, {});
    running.unlock();
    complete(done);
}

/// The same, and the thread looks in soon: nobody else may. Whether it sleeps for long is looked at after the lock is
/// free, as it says so before it tries the lock for the last time. Only the thread itself says that it is awake: a
/// helper may silence the bell before the thread has heard it.
void P2p::hand_over(Running& running) {
    need_thread();
    const auto done = std::exchange(done_, {});
    running.unlock();
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (long_nap_.load(std::memory_order_seq_cst) || stopping_) interrupt();
    complete(done);
}

void P2p::need_thread() {
    if (stopping_ || thread_.joinable()) return;
    try {
        thread_ = start_quiet_thread("ddp-p2p", [this] { run(); });
    } catch (const Error& error) {  // what has been started would have nobody to end it
        fail(error, nullptr, true);
    }
}

}  // namespace ddp::detail
