#pragma once
// P2pSetup: the parameters that a group gives to its P2p. OwnRank: the data that all Peer objects of this rank share.
// Activity: the state of P2p that its parts read without its lock.

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/system/unique_fd.hpp"
#include "worker_lib/src/native/net/group_key.hpp"
#include "worker_lib/src/native/node/node.hpp"
#include "worker_lib/src/native/p2p/work.hpp"
#include "worker_lib/src/native/protocol/member.hpp"
#include "worker_lib/src/native/shm/arena.hpp"
#include "worker_lib/src/operation/failure.hpp"
#include "worker_lib/src/operation/work_state.hpp"

namespace ddp::detail {

struct P2pSetup {
    std::string group;
    int rank = 0;
    const Topology& topology;            ///< outlives P2p::stop(), as everything here that is a reference
    const std::vector<Member>& members;  ///< by rank
    Node& node;
    const HeapArena& arena;
    GroupKey key;                                    ///< for connections to other nodes
    ddprun::UniqueFd listener;                       ///< for connections from other nodes; none with one node
    std::function<void(const Failure&)> on_failure;  ///< reports the first failure to the group; any thread
    /// Reports that a callback of a work threw. Any thread, also after the group's end.
    std::function<void(const WorkState&, std::string_view)> on_thrown;
};

namespace p2p {

struct OwnRank {
    int rank = 0;
    const std::vector<Member>& members;  ///< by rank
    const HeapArena& arena;
    const Node& node;
    const std::atomic<std::uint64_t>& listening;  ///< of the own PostPage
    std::vector<PendingTransfer> finished;        ///< transfers that are done, until WorkTable::collect()
    std::optional<Failure> reported_failure;      ///< the group's failure, if a peer has reported one
};

struct Activity {
    std::atomic<bool> is_helped{false};    ///< a caller waits for a work, and makes progress meanwhile
    std::atomic<bool> is_stopping{false};  ///< P2p::stop() has been called
};

}  // namespace p2p

}  // namespace ddp::detail
