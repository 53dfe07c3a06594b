#pragma once
// Connects the members of a new group: each publishes its record in the store and reads the others', then they open
// connections and share memory.

#include <map>
#include <memory>
#include <vector>

#include "common/system/unique_fd.hpp"
#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/native/collectives/all_reduce_rules.hpp"
#include "worker_lib/src/native/net/handshake.hpp"
#include "worker_lib/src/native/net/links.hpp"
#include "worker_lib/src/native/node/node.hpp"
#include "worker_lib/src/native/protocol/member.hpp"

namespace ddp::detail {

/// The connections of one rank to its peers.
struct Connected {
    Topology topology;
    std::vector<Member> members;       ///< by rank
    std::shared_ptr<Segment> segment;  ///< of this rank
    std::vector<LocalRank> local;      ///< by local index
    std::map<int, Link> links;         ///< by rank
    GroupKey key;                      ///< for connections that are made later
    ddprun::UniqueFd p2p_listener;     ///< for sends and receives; only with several nodes
    std::map<int, Link> leaders;       ///< if this rank leads its node: the other leaders, by rank
    AllReduceRules rules;              ///< the same on all ranks
};

/// Connects this rank to all members. Collective. Throws Error{Timeout} or Error{PeerLost} naming the ranks,
/// Error{System}.
[[nodiscard]] Connected connect_members(const GroupSpec& spec);

}  // namespace ddp::detail
