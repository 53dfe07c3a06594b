#pragma once
// Member: the record that each rank publishes through the store so that its peers find it. Topology: which ranks share
// a node, which are those with equal Member::node. Pure, but for describe_self().

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/src/bootstrap/group_spec.hpp"

namespace ddp::detail {

/// Ranks of different versions refuse each other. Increment it with every change to data that ranks read of each other:
/// the records of members, the leaders' alarms, the layout of Control and of staging slots, the sizes of pieces, the
/// order and steps of messages.
inline constexpr std::uint32_t kProtocolVersion = 23;
/// Returns "ddp/VERSION/PROTOCOL": the library's version and the protocol's.
[[nodiscard]] std::string own_version();
/// Returns a member's version for errors: "VERSION (protocol PROTOCOL)".
[[nodiscard]] std::string version_text(std::string_view version);

struct Member {
    static constexpr const char* kSecret = "secret";  ///< that of the worker group, from ddprun
    static constexpr const char* kToken = "token";

    std::string version = own_version();
    std::string node;                     ///< equal for ranks of one node: boot id and node rank
    std::string hostname;                 ///< for errors
    int pid = 0;                          ///< for errors; in its own namespace
    int global_rank = -1;                 ///< for errors; not published, as all ranks know it; -1: unknown
    std::string token;                    ///< random: no other group has the same GroupKey (net/)
    std::string authentication = kToken;  ///< what GroupKey contains beside it: kSecret, or nothing
    std::string local_name;  ///< abstract Unix socket on which it passes its memory, without the leading zero byte
    std::string address;     ///< numeric
    int port = 0;
    int alarm_port = 0;  ///< for the Watch of another node's leader
    int p2p_port = 0;    ///< for sends and receives
    // The same on all ranks, which compare them:
    std::string all_reduce = "usual";        ///< AllReduceRules::text()
    std::string sockets_per_peer = "usual";  ///< SocketsPerPeer::text()
};

/// Returns the record as text, which begins with version, hostname and pid in every version of the library.
[[nodiscard]] std::string encode(const Member& member);
/// Returns the member; only those three fields if its version is another. Throws Error{System} for text that encode()
/// did not write.
[[nodiscard]] Member decode_member(std::string_view text);

/// Returns "host a, pid 71".
[[nodiscard]] std::string location_text(const Member& member);
/// Returns the rank's name for errors, as name_rank().
[[nodiscard]] std::string name_of(int rank, const Member& member);
[[nodiscard]] inline std::string name_of(int rank, const std::vector<Member>& members) {
    return name_of(rank, members[static_cast<std::size_t>(rank)]);
}

/// Returns its name for errors about connections: "rank 3 (host a, pid 71, 10.0.0.7)".
[[nodiscard]] std::string name_with_address(int rank, const std::vector<Member>& members);

/// Returns a record with node, hostname, pid, global_rank, token and local_name of this process.
[[nodiscard]] Member describe_self(const GroupSpec& spec);

/// The ranks of a group by node. Nodes are ordered by their lowest rank, the ranks of a node by rank: this is the order
/// of every summation.
struct Topology {
    std::vector<std::vector<int>> nodes;
    int own_node = 0;
    int own_index = 0;  ///< within the own node
    int carriers = 0;   ///< ranks of each node that have links to other nodes: the size of the smallest node

    [[nodiscard]] const std::vector<int>& local() const { return nodes[static_cast<std::size_t>(own_node)]; }
    [[nodiscard]] bool own_carries() const { return nodes.size() > 1 && own_index < carriers; }
    /// Returns the rank of node `node` with the same local index as this rank. Call it only if own_carries(), or if
    /// that node has more ranks than own_index.
    [[nodiscard]] int counterpart(int node) const {
        return nodes[static_cast<std::size_t>(node)][static_cast<std::size_t>(own_index)];
    }
    /// Returns the counterparts on all other nodes. Call it only if own_carries().
    [[nodiscard]] std::vector<int> counterparts() const;
    [[nodiscard]] int node_of(int rank) const;
    [[nodiscard]] int ranks() const;  ///< of all nodes
    /// Returns whether every node has a single rank, so that nothing passes through staging slots anywhere.
    [[nodiscard]] bool has_one_rank_each() const { return static_cast<std::size_t>(ranks()) == nodes.size(); }
};
/// Returns the topology of the group as rank `own_rank` sees it.
[[nodiscard]] Topology make_topology(const std::vector<Member>& members, int own_rank);

}  // namespace ddp::detail
