#pragma once
// Scheduler: decides which thread makes progress. The thread that holds the lock `running` does, for all works. It is
// the thread that submits, for as long as something moves; a thread that waits, which spins and then sleeps; or the
// thread "ddp-p2p" while no caller waits. That one sleeps without the lock, so that a waiter never has to wait for it.
// P2p owns the Scheduler. Any thread may make the public calls, without the lock.

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "ddp/error.hpp"
#include "worker_lib/src/native/p2p/peers.hpp"
#include "worker_lib/src/native/p2p/progress_engine.hpp"
#include "worker_lib/src/native/p2p/running.hpp"
#include "worker_lib/src/native/p2p/setup.hpp"
#include "worker_lib/src/native/p2p/sleeper.hpp"
#include "worker_lib/src/native/p2p/work_table.hpp"

namespace ddp::detail::p2p {

class Scheduler {
public:
    /// Starts the thread at once if there are connections to other nodes, because their ranks may send before this rank
    /// makes a call. spin_pauses: processor pauses of a waiter between two yields; 0 if ranks share cores.
    Scheduler(const P2pSetup& setup, ProgressEngine& engine, WorkTable& works, const Peers& peers, Sleeper& sleeper,
              Activity& activity, int spin_pauses);

    /// Starts the submitted works, and moves messages for a moment.
    void start() EXCLUDES(kRunning);
    /// Makes progress until `work` has ended; returns at once if another caller does so.
    void help(const P2pWork& work) EXCLUDES(kRunning);
    /// Moves all messages that can be moved now.
    void hurry() EXCLUDES(kRunning);
    /// Ends the thread, calls the engine's stop(), and completes all works.
    void stop(const Failure& final_report, bool failed) EXCLUDES(kRunning);

    /// Returns P2p's lock, which guards the peers, the works and the engine. It is taken before WorkTable's.
    [[nodiscard]] RunningMutex& running() { return running_; }
    /// Wakes the thread if it sleeps for long. Call it after the lock was released, if a work is in flight: the thread
    /// may have found the lock taken before it went to sleep.
    void end_long_sleep() EXCLUDES(kRunning) {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (long_sleep_.load(std::memory_order_seq_cst)) sleeper_.interrupt();
    }

private:
    void run() EXCLUDES(kRunning);
    [[nodiscard]] bool move(Running& running) REQUIRES(kRunning);
    [[nodiscard]] bool prepare_sleep() REQUIRES(kRunning);
    void deliver(Running& running) REQUIRES(kRunning);
    void release(Running& running) RELEASE(kRunning);
    void hand_over(Running& running) RELEASE(kRunning);
    void complete(const std::vector<WorkTable::Ended>& ended) const EXCLUDES(kRunning);
    void need_thread() REQUIRES(kRunning);

    const P2pSetup& setup_;
    ProgressEngine& engine_;
    WorkTable& works_;
    const Peers& peers_;
    Sleeper& sleeper_;
    Activity& activity_;
    const int spin_pauses_;
    RunningMutex running_;
    std::atomic<bool> long_sleep_{false};  ///< the thread sleeps for too long to notice new work in time by itself
    std::thread thread_;                   ///< last: it uses all of the above
};

}  // namespace ddp::detail::p2p
