#pragma once
// GroupFailure: reports a failure of one group to the peers and to every part of the native backend that may wait. It
// fails no work itself: OperationRunner and P2p do, on threads that no longer touch the buffers. NativeBackend owns it.
// Any thread may call it.

#include <cstdint>
#include <string_view>

#include "worker_lib/src/native/backend/connected_peers.hpp"
#include "worker_lib/src/native/backend/job_queue.hpp"
#include "worker_lib/src/native/backend/p2p_slot.hpp"
#include "worker_lib/src/operation/failure.hpp"
#include "worker_lib/src/operation/work_state.hpp"

namespace ddp::detail {

class GroupFailure {
public:
    /// All arguments outlive it.
    GroupFailure(ConnectedPeers& peers, JobQueue& queue, P2pSlot& p2p) : peers_(peers), queue_(queue), p2p_(p2p) {}

    /// Reports the failure to all ranks of the node, and through them to others. Operations after number `after` cannot
    /// complete any more; earlier ones may.
    void report(const Failure& failure, std::uint64_t after);
    /// The same for a failure in the step after the last operation that this rank has done.
    void report(const Failure& failure) { report(failure, peers_.node().progress.last_done()); }
    void report_out_of_memory();
    /// Ends the waits of this rank only: its peers learn from its departure.
    void stop(const Failure& failure);
    void abort(std::string_view reason);
    /// Ends the group because of an error that this rank has met elsewhere.
    void fail(const Error& error);
    /// Aborts the group because a callback of `work` has thrown `text`. Does nothing if the group has failed already:
    /// the callback may have thrown because of that.
    void abort_for(const WorkState& work, std::string_view text);

private:
    void end_all(const Failure& failure);

    ConnectedPeers& peers_;
    JobQueue& queue_;
    P2pSlot& p2p_;
};

}  // namespace ddp::detail
