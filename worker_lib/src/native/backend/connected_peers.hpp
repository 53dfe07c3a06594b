#pragma once
// ConnectedPeers: owns the connections to the ranks of one group on the native backend: memory shared with those of the
// node, links to other nodes, the leaders' watch. NativeBackend owns it and all its parts use it. Any thread may call
// the functions of PeerStates. The header of each part names the threads that may use it.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker_lib/src/bootstrap/peer_states.hpp"
#include "worker_lib/src/native/backend/connect.hpp"
#include "worker_lib/src/native/net/links.hpp"
#include "worker_lib/src/native/net/watch.hpp"
#include "worker_lib/src/native/node/node.hpp"
#include "worker_lib/src/native/protocol/member.hpp"
#include "worker_lib/src/native/shm/arena.hpp"

namespace ddp::detail {

class ConnectedPeers final : public PeerStates {
public:
    /// Takes the connections from `connected`, but leaves those for sends and receives in it.
    ConnectedPeers(const GroupSpec& spec, Connected& connected);

    [[nodiscard]] const std::string& group() const { return group_; }
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] const Topology& topology() const { return topology_; }
    [[nodiscard]] const std::vector<Member>& members() const { return members_; }
    [[nodiscard]] HeapArena& arena() { return arena_; }
    /// Returns as BackendImpl::arenas().
    [[nodiscard]] std::vector<std::span<const std::byte>> arenas() const;
    [[nodiscard]] Node& node() { return node_; }
    [[nodiscard]] const Node& node() const { return node_; }
    /// Returns null on ranks that exchange no messages with other nodes.
    [[nodiscard]] Links* links() { return links_ ? &*links_ : nullptr; }
    /// Returns null on ranks that do not lead their node, and in groups of one node.
    [[nodiscard]] Watch* watch() { return watch_ ? &*watch_ : nullptr; }
    /// Returns this rank as errors name it.
    [[nodiscard]] std::string own_name() const { return name_of(rank_); }

    [[nodiscard]] std::optional<Error> failure() const override;
    [[nodiscard]] std::string location_of(int rank) const override;
    [[nodiscard]] int global_rank(int rank) const override {
        return members_[static_cast<std::size_t>(rank)].global_rank;
    }
    [[nodiscard]] RankState state_of(int rank) const override;
    [[nodiscard]] int stopped_pid(int rank) const override;

private:
    /// Returns the local index of a rank; nothing: it is on another node, or the own rank.
    [[nodiscard]] std::optional<int> neighbour(int rank) const;

    const std::string group_;
    const int rank_;
    const Topology topology_;
    const std::vector<Member> members_;
    HeapArena arena_;
    Node node_;
    std::optional<Links> links_;
    std::optional<Watch> watch_;
};

}  // namespace ddp::detail
