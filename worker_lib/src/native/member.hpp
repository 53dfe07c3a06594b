#pragma once
// Member: what each rank publishes through the store so that its peers find it; Topology: which of them share a node.
// Pure, but for describe_self().

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/src/backend.hpp"

namespace ddp::detail {

struct Member {
    std::string node;        ///< equal for ranks of one node: boot id and node rank
    std::string hostname;    ///< for errors
    int pid = 0;             ///< for errors; in its own namespace
    std::string token;       ///< random; rank 0's is the group's password
    std::string local_name;  ///< abstract Unix socket on which it passes its memory, without the leading zero byte
    std::string address;     ///< numeric
    int port = 0;
    int alarm_port = 0;  ///< for the watch of another node's leader
    int p2p_port = 0;    ///< for sends and receives
    // All must go by the same.
    std::string all_reduce = "usual";        ///< AllReduceRules::text()
    std::string sockets_per_peer = "usual";  ///< SocketsPerPeer::text()
};

[[nodiscard]] std::string encode(const Member& member);
/// Throws Error{System} for text that encode() did not write.
[[nodiscard]] Member decode_member(std::string_view text);

/// "host a, pid 71".
[[nodiscard]] std::string place_of(const Member& member);
/// For errors: "rank 3 (host a, pid 71)".
[[nodiscard]] std::string name_of(int rank, const Member& member);
[[nodiscard]] inline std::string name_of(int rank, const std::vector<Member>& members) {
    return name_of(rank, members[static_cast<std::size_t>(rank)]);
}

/// For errors about the way to it: "rank 3 (host a, pid 71, 10.0.0.7)".
[[nodiscard]] std::string name_with_address(int rank, const std::vector<Member>& members);

/// The machine of this process, or the node that it emulates: boot id and node rank.
[[nodiscard]] std::string machine_of(const GroupSpec& spec);

/// node, hostname, pid, token and local_name of this process.
[[nodiscard]] Member describe_self(const GroupSpec& spec);

/// The ranks of a group by node. Nodes are ordered by their lowest rank, the ranks of a node by rank: this is the order
/// of every summation.
struct Topology {
    std::vector<std::vector<int>> nodes;
    int own_node = 0;
    int own_index = 0;  ///< within the own node
    int carriers = 0;   ///< ranks per node that talk to other nodes: the size of the smallest node

    [[nodiscard]] const std::vector<int>& local() const { return nodes[static_cast<std::size_t>(own_node)]; }
    [[nodiscard]] bool own_carries() const { return nodes.size() > 1 && own_index < carriers; }
    /// The rank that stands for node `node` towards the own rank: the one of the same local index.
    [[nodiscard]] int counterpart(int node) const {
        return nodes[static_cast<std::size_t>(node)][static_cast<std::size_t>(own_index)];
    }
    /// Those of all other nodes. Only if own_carries().
    [[nodiscard]] std::vector<int> counterparts() const;
    [[nodiscard]] int node_of(int rank) const;
    [[nodiscard]] int ranks() const;  ///< of all nodes
    /// Every node is a single rank, so that nothing passes through staging slots anywhere.
    [[nodiscard]] bool has_one_rank_each() const { return static_cast<std::size_t>(ranks()) == nodes.size(); }
};
[[nodiscard]] Topology make_topology(const std::vector<Member>& members, int own_rank);

}  // namespace ddp::detail
