#pragma once
// P2p: the sends and receives of one rank in its group. They run beside the collectives, with a lock and a thread of
// their own; design in docs/design/009-point-to-point.md. The native backend owns it, together with the works that are
// not done. Any thread may call it, open(), ImmediateBatch::finish() and submit() one at a time.
//
// Scheduler decides which thread makes progress, ProgressEngine moves the messages of all Peers, FailureDetector finds
// the works that cannot complete. Small messages between neighbours need none of these: see ImmediateTransfers.

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

    /// Sends as much as can be sent now, before submit().
    [[nodiscard]] p2p::ImmediateBatch open(const TransferList& batch) noexcept EXCLUDES(p2p::kRunning) {
        return immediate_.open(batch);
    }
    /// Queues the batch, whose number must be new; the work's start() moves it.
    /// done   what ImmediateBatch::finish() has done of it; not all
    [[nodiscard]] std::shared_ptr<WorkState> submit(TransferList batch, p2p::DoneTransfers done);
    /// Starts the submitted works, and moves messages for a moment. The caller must hold no lock: works end here, and
    /// their callbacks may submit others.
    void start() EXCLUDES(p2p::kRunning) { scheduler_.start(); }
    /// Makes progress until `work` is done; returns at once if another thread does so.
    void help(const P2pWork& work) EXCLUDES(p2p::kRunning) { scheduler_.help(work); }
    /// Moves all messages that can be moved now.
    void hurry() EXCLUDES(p2p::kRunning) { scheduler_.hurry(); }
    /// Aborts the group because of `work`, unless it has failed already.
    void abort_group(const P2pWork& work, std::string_view reason) const {
        if (setup_.on_thrown) setup_.on_thrown(work, reason);
    }
    /// Returns whether this process is a child of fork(): the works are its parent's.
    [[nodiscard]] bool is_elsewhere() const { return home_.is_elsewhere(); }
    /// Makes a thread that sleeps look at the state of the node. Any thread.
    void interrupt() { sleeper_.interrupt(); }
    /// Fails the works in flight with the node's failure, which must exist, and reports `final_report` to other nodes.
    /// No buffer is touched afterwards.
    void stop(const Failure& final_report, bool failed) EXCLUDES(p2p::kRunning);

private:
    const ProcessMark home_;
    P2pSetup setup_;
    const Participant self_;
    p2p::Activity activity_;
    p2p::Sleeper sleeper_;  ///< lives as long as the works, whose waiters may interrupt() it
    p2p::Peers peers_;
    p2p::WorkTable works_;
    p2p::ProgressEngine engine_;
    p2p::Scheduler scheduler_;
    p2p::ImmediateTransfers immediate_;
};

}  // namespace ddp::detail
