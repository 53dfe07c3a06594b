#pragma once
// Node: the ranks of a group that share a machine, seen from one of them. The backend owns one per group; collectives,
// connections between nodes, and point-to-point transfers use its parts. The header of each part names the threads that
// may call it.

#include <string>
#include <utility>
#include <vector>

#include "worker_lib/src/native/node/meetings.hpp"
#include "worker_lib/src/native/node/node_barrier.hpp"
#include "worker_lib/src/native/node/node_failure.hpp"
#include "worker_lib/src/native/node/node_progress.hpp"
#include "worker_lib/src/native/node/node_ranks.hpp"
#include "worker_lib/src/native/node/peer_wait.hpp"
#include "worker_lib/src/native/node/shared_work.hpp"

namespace ddp::detail {

struct Node {
    /// `local` by local index; the own rank is at `own_index`. group_size: the number of ranks on all nodes.
    Node(std::string group, int group_size, std::vector<LocalRank> local, int own_index)
        : ranks(std::move(group), group_size, std::move(local), own_index),
          progress(ranks),
          failure(ranks),
          wait(ranks, progress, failure),
          meetings(ranks, progress, failure, wait),
          barrier(ranks, wait),
          shared_work(ranks, failure, wait, meetings) {}
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    /// Ends `operation` on this rank, which does not need the announcements of its peers any more.
    void done(const Operation& operation) {
        progress.finish(operation);
        meetings.close();
        ranks.wake_all();
    }

    const NodeRanks ranks;   ///< names, processes, shared memory
    NodeProgress progress;   ///< how far each rank is, and whether it is still there
    NodeFailure failure;     ///< why the group is unusable
    const PeerWait wait;     ///< until all ranks have reached a state
    Meetings meetings;       ///< the first step of every operation
    NodeBarrier barrier;     ///< between its later steps
    SharedWork shared_work;  ///< instead of a barrier, if ranks share cores
};

}  // namespace ddp::detail
