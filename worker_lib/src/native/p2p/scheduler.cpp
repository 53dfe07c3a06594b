#include "worker_lib/src/native/p2p/scheduler.hpp"

#include <chrono>
#include <utility>

#include "common/clock.hpp"
#include "worker_lib/src/native/shm/waiter.hpp"
#include "worker_lib/src/util/signal_masked_thread.hpp"

namespace ddp::detail::p2p {

namespace {

/// Time for which a waiter spins before it sleeps, for the reasons of Waiter.
constexpr auto kSpinning = std::chrono::milliseconds(2);
/// Passes of a waiter after which it looks for failures, if nothing moves.
constexpr unsigned kPassesBetweenLooks = 4096;
/// The same if each pass moves up to kMaxPerPass per peer. After as many, other threads get the lock.
constexpr unsigned kMovesBetweenLooks = 32;
/// Passes between two looks at the connections: a look at a ring is a load, one at a connection is a system call.
constexpr unsigned kPassesBetweenSockets = 8;
/// The thread's sleep between two looks for waiters, and the number of idle looks after which it sleeps longer.
constexpr int kTickMs = 1;
constexpr int kTicksBeforeLongSleep = 50;
constexpr int kNoTimeout = -1;

}  // namespace

Scheduler::Scheduler(const P2pSetup& setup, ProgressEngine& engine, WorkTable& works, const Peers& peers,
                     Sleeper& sleeper, Activity& activity, int spin_pauses)
    : setup_(setup),
      engine_(engine),
      works_(works),
      peers_(peers),
      sleeper_(sleeper),
      activity_(activity),
      spin_pauses_(spin_pauses) {
    if (!peers.has_network()) return;
    const Running running(running_);
    thread_ = start_signal_masked_thread("ddp-p2p", [this] { run(); });
}

/// Looks again after the lock was released, because another thread may have submitted meanwhile and left its work to
/// us. That thread sets the flag and then looks at the lock. We release the lock and then look at the flag. Unlocking
/// is a plain store, so each has a fence between its two steps, and at least one sees the other (Dekker's algorithm).
void Scheduler::start() {
    for (;;) {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (!works_.any_submitted(std::memory_order_seq_cst)) return;
        if (!running_.try_lock()) return sleeper_.interrupt();  // the holder may sleep
        Running running(running_, std::adopt_lock);
        (void)move(running);
        engine_.busy() ? hand_over(running) : release(running);
    }
}

/// Returns whether there may be more to move. It stops after a while, because other threads want the lock and deadlines
/// have to be checked.
bool Scheduler::move(Running& running) {
    for (unsigned moves = 0; moves < kMovesBetweenLooks; ++moves) {
        if (!engine_.pass()) return false;
        deliver(running);
    }
    engine_.check_for_failures();
    return true;
}

void Scheduler::hurry() {
    if (!running_.try_lock()) return;
    Running running(running_, std::adopt_lock);
    move(running) ? hand_over(running) : release(running);
    start();
}

void Scheduler::help(const P2pWork& work) {
    if (activity_.is_helped.exchange(true)) return;
    Running running(running_);
    if (!activity_.is_stopping) sleeper_.announce_wakefulness();
    auto spin_until = ddprun::TimePoint::max();
    int idle = 0;
    bool moved = true;
    unsigned moves = 0;
    for (unsigned pass = 1; !activity_.is_stopping; ++pass) {
        engine_.set_network(moved || pass % kPassesBetweenSockets == 0);
        moved = engine_.pass();
        engine_.set_network(true);
        deliver(running);
        if (work.has_ended()) break;
        if (pass % kPassesBetweenLooks == 0 || (moved && ++moves % kMovesBetweenLooks == 0))
            engine_.check_for_failures();
        if (moved) {
            idle = 0;
            spin_until = ddprun::TimePoint::max();
            continue;
        }
        if (idle++ < spin_pauses_) {
            Waiter::pause();
            continue;
        }
        idle = 0;
        const auto now = ddprun::Clock::now();
        if (spin_until == ddprun::TimePoint::max()) spin_until = now + kSpinning;
        if (now < spin_until) {
            running.unlock();  // for threads that want to submit
            Waiter::yield();
            running.lock();
            continue;
        }
        if (!prepare_sleep() && !works_.any_ended() && !engine_.failed()) {
            (void)sleeper_.sleep(sleeper_.nap_ms(), peers_.network_fd());
        }
        sleeper_.announce_wakefulness();
        sleeper_.silence();
        engine_.check_for_failures();
    }
    activity_.is_helped = false;
    engine_.busy() || peers_.has_network() ? hand_over(running) : release(running);
    start();
}

/// The body of the thread. While waiters come and go, it only takes short naps and looks for work after each. So
/// submit() need not set `asleep`, which would make peers wake the thread for messages that a waiter takes long before.
void Scheduler::run() {
    int timeout = kTickMs;
    int idle = 0;    // ticks with nothing to do
    int waited = 0;  // ticks while another thread held the lock
    bool failed = false;
    while (!activity_.is_stopping) {
        const bool with_network = !failed && !activity_.is_helped;
        const bool rung = sleeper_.sleep(timeout, with_network ? peers_.network_fd() : -1);
        if (!running_.try_lock()) {
            if (!rung) {
                if (++waited <= kTicksBeforeLongSleep) {
                    timeout = kTickMs;
                    long_sleep_ = false;
                } else {  // From now on hand_over() rings. A thread may have passed it just before: hence a last look.
                    timeout = long_sleep_.exchange(true) ? Sleeper::kNapMs : 0;
                    std::atomic_thread_fence(std::memory_order_seq_cst);  // see end_long_sleep()
                }
                continue;
            }
            running_.lock();  // sleeping again would only find the same ring
        }
        Running running(running_, std::adopt_lock);
        waited = 0;
        sleeper_.silence();
        bool more = move(running);
        if (!more) engine_.check_for_failures();
        const bool attended = activity_.is_helped;
        if (!attended && !more) more = prepare_sleep();
        failed = engine_.failed();
        idle = engine_.busy() ? 0 : idle + 1;
        timeout = idle > kTicksBeforeLongSleep ? kNoTimeout : kTickMs;
        if (engine_.busy() && !attended) timeout = more ? 0 : sleeper_.nap_ms();
        long_sleep_ = timeout == kNoTimeout || timeout == Sleeper::kNapMs;
        release(running);
        start();
    }
}

/// Makes peers ring when there is something to move. Returns whether there is already.
bool Scheduler::prepare_sleep() {
    if (!engine_.busy()) return false;
    sleeper_.announce_sleep();
    if (engine_.pass()) return true;
    return sleeper_.fence_wakers() && engine_.pass();
}

/// Completes works without the lock, because their callbacks may send and receive, and takes it again.
void Scheduler::deliver(Running& running) {
    if (!works_.any_ended()) return;
    release(running);
    running.lock();
}

/// Completes works without the lock, and does not take it again: another thread may sleep with it.
void Scheduler::release(Running& running) {
    const auto ended = works_.take_ended();
    running.unlock();
    complete(ended);
}

/// As release(), but makes the thread take over soon, because no other may. Only the thread itself announces that it is
/// awake, because a helper may silence the doorbell before the thread has noticed the ring.
void Scheduler::hand_over(Running& running) {
    need_thread();
    const auto ended = works_.take_ended();
    running.unlock();
    end_long_sleep();
    if (activity_.is_stopping) sleeper_.interrupt();
    complete(ended);
}

void Scheduler::complete(const std::vector<WorkTable::Ended>& ended) const {
    for (const WorkTable::Ended& one : ended) {
        one.work->complete(one.error, [&](std::string_view thrown) {
            if (setup_.on_thrown) setup_.on_thrown(*one.work, thrown);
        });
    }
}

void Scheduler::need_thread() {
    if (activity_.is_stopping || thread_.joinable()) return;
    try {
        thread_ = start_signal_masked_thread("ddp-p2p", [this] { run(); });
    } catch (const Error& error) {  // no thread would complete the works that have been started
        engine_.fail({.why = failure_of(error), .is_ours = true});
    }
}

void Scheduler::stop(const Failure& final_report, bool failed) {
    sleeper_.interrupt();
    if (thread_.joinable()) thread_.join();
    Running running(running_);
    engine_.stop(final_report, failed);
    deliver(running);
}

}  // namespace ddp::detail::p2p
