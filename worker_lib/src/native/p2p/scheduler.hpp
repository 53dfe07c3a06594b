#pragma once
// Scheduler: decides which thread makes progress. The one that holds the lock `running` does, for all works: the thread
// that submits, for as long as something moves; a thread that waits, which spins and then sleeps; and the thread
// "ddp-p2p" while no caller waits. That one sleeps without the lock, so that a waiter never has to wait for it. P2p
// owns the Scheduler; all public calls may come from any thread, without the lock.

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ddp/error.hpp"
#include "worker_lib/src/native/p2p/peers.hpp"
#include "worker_lib/src/native/p2p/progress_engine.hpp"
#include "worker_lib/src/native/p2p/setup.hpp"
#include "worker_lib/src/native/p2p/sleeper.hpp"
#include "worker_lib/src/native/p2p/work_table.hpp"
#include "worker_lib/src/tuning/light_mutex.hpp"

namespace ddp::detail::p2p {

class Scheduler {
public:
    /// Starts the thread if there are connections to other nodes: their ranks may send before we do anything.
    Scheduler(const P2pSetup& setup, ProgressEngine& engine, WorkTable& works, const Peers& peers, Sleeper& sleeper,
              Activity& activity, int pauses);

    /// Starts what has been submitted, and moves what can be moved for a moment.
    void start();
    /// Makes progress until `work` has ended; returns at once if another caller does so.
    void help(const P2pWork& work);
    /// Moves what can be moved now.
    void hurry();
    /// Ends the thread, has the engine stop(), and completes all works.
    void stop(const Failure& goodbye, bool failed);

    /// P2p's lock, which guards the peers, the works and the engine. It is taken before WorkTable's.
    [[nodiscard]] LightMutex& running() { return running_; }
    /// Wakes the thread if it sleeps for long. Call it after the lock was released, if a work is in flight: the thread
    /// may have found the lock taken before it went to sleep.
    void end_long_sleep() {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (long_sleep_.load(std::memory_order_seq_cst)) sleeper_.interrupt();
    }

private:
    using Running = std::unique_lock<LightMutex>;

    void run();
    [[nodiscard]] bool move(Running& running);
    [[nodiscard]] bool prepare_sleep();
    void deliver(Running& running);
    void release(Running& running);
    void hand_over(Running& running);
    void complete(const std::vector<WorkTable::Ended>& ended) const;
    void need_thread();

    const P2pSetup& setup_;
    ProgressEngine& engine_;
    WorkTable& works_;
    const Peers& peers_;
    Sleeper& sleeper_;
    Activity& activity_;
    const int pauses_;
    LightMutex running_;
    std::atomic<bool> long_sleep_{false};  ///< the thread sleeps for too long to notice new work in time by itself
    std::thread thread_;                   ///< last: it uses all of the above
};

}  // namespace ddp::detail::p2p
