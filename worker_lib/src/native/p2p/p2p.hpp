#pragma once
// P2p: the sends and receives of one rank in its group. They run beside the collectives, with a lock and a thread of
// their own; design in docs/design/009-point-to-point.md. The native backend owns it, together with the works that are
// not done. Any thread may call it, open(), finish() and submit() one at a time.
//
// Scheduler decides which thread makes progress, ProgressEngine moves the messages of all Peers, FailureDetector finds
// out that it cannot. Small messages between neighbours need none of that, nor a Work: see ImmediateTransfers.

#include <memory>

#include "worker_lib/src/native/p2p/immediate.hpp"
#include "worker_lib/src/native/p2p/peers.hpp"
#include "worker_lib/src/native/p2p/progress_engine.hpp"
#include "worker_lib/src/native/p2p/scheduler.hpp"
#include "worker_lib/src/native/p2p/setup.hpp"
#include "worker_lib/src/native/p2p/sleeper.hpp"
#include "worker_lib/src/native/p2p/work_table.hpp"
#include "worker_lib/src/util/forks.hpp"

namespace ddp::detail {

class P2p : public std::enable_shared_from_this<P2p> {
public:
    /// Throws Error{System}.
    explicit P2p(P2pSetup setup);
    ~P2p();
    P2p(const P2p&) = delete;
    P2p& operator=(const P2p&) = delete;

    [[nodiscard]] const Participant& self() const { return self_; }

    /// Sends what can be sent now, before submit(), under the caller's lock of numbers. False: nothing has happened.
    /// Else finish() has to follow, and no other thread moves messages until then.
    [[nodiscard]] bool open(const TransferBatch& batch) noexcept { return immediate_.open(batch); }
    /// Receives what arrives within a moment. True: the whole batch is done; else submit() has to follow.
    [[nodiscard]] bool finish(const TransferBatch& batch) noexcept { return immediate_.finish(batch); }
    /// Returns whether a peer has got a message of the batch that has to be submitted.
    [[nodiscard]] bool has_sent() const { return immediate_.any_done(); }
    /// Queues the batch, whose number must be new; the work's start() moves it.
    [[nodiscard]] std::shared_ptr<WorkState> submit(TransferBatch batch);
    /// Starts what has been submitted, and moves what can be moved for a moment. The caller must hold no lock: works
    /// end here, and their callbacks may submit others.
    void start() { scheduler_.start(); }
    /// Makes progress until `work` is done; returns at once if another thread does so.
    void help(const P2pWork& work) { scheduler_.help(work); }
    /// Moves what can be moved now.
    void hurry() { scheduler_.hurry(); }
    /// Returns whether this process is a child of fork(): the works are its parent's.
    [[nodiscard]] bool is_elsewhere() const { return home_.is_elsewhere(); }
    /// Has a thread that sleeps look at the state of the node. Any thread.
    void interrupt() { sleeper_.interrupt(); }
    /// Fails what is under way with the node's failure, which there must be, and reports `goodbye` to other nodes.
    /// No buffer is touched afterwards.
    void stop(const Failure& goodbye, bool failed);

private:
    const ProcessMark home_;
    P2pSetup setup_;
    const Participant self_;
    p2p::Activity activity_;
    p2p::Sleeper sleeper_;  ///< as long as there are works: their waiters may interrupt() it
    p2p::Peers peers_;
    p2p::WorkTable works_;
    p2p::ProgressEngine engine_;
    p2p::Scheduler scheduler_;
    p2p::ImmediateTransfers immediate_;
};

}  // namespace ddp::detail
