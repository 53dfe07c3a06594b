#pragma once
// NodeTable: the nodes of a job, and the subsets of them that rules count and list. A rule changes a node through this
// class alone, which keeps the subsets in step, so that a join does not look at all nodes. A plain value, as all of
// State.

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/clock.hpp"
#include "common/ids.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::coordinator {

using namespace protocol;  // the coordinator works on these messages

/// The connection between a node and the daemon.
enum class Link {
    kConnected,
    kDisconnected,  ///< its connection ended; it may reconnect until lost_at() (nodes.hpp)
    kLost,          ///< remembered in case it reconnects: to stop processes that it may have, or to give it its rank
};

/// A node that has joined, or was lost and may reconnect.
struct Node {
    Join join;
    Link link = Link::kConnected;
    TimePoint heard_at;           ///< when its last message came
    TimePoint alive_at;           ///< its agent has run since: when it first joined, or when what it has heard was sent
    std::uint64_t heartbeat = 0;  ///< the number of its newest one
    TimePoint idle_since;         ///< since when it has no processes; meaningless while busy
    TimePoint vanished_at;        ///< when its connection ended, or its last message; meaningless while connected
    bool broken = false;          ///< disconnected or lost by the network, or silent: its agent may live
    bool given_up = false;  ///< it was lost while busy: its processes have no place in the job, and must end at once
    std::optional<Generation> busy;          ///< it may have processes of this worker group
    std::optional<NodeRank> last_rank;       ///< in the newest worker group, if it was a member
    std::optional<int> leaving;              ///< the signal that it got; it takes no further part
    bool beside_daemon = false;              ///< on the daemon's own host
    bool set_aside = false;                  ///< its host is set aside: the node stays connected, and gets no workers
    std::optional<TimePoint> overdue_since;  ///< its workers have not ended in time: it does not count until they have
    TimePoint connected_at;                  ///< by its newest connection
    TimePoint explained_at = {};             ///< when it was last sent why it waits
};

/// Returns whether the node is connected, or may reconnect within its grace, and neither leaves nor is set aside.
[[nodiscard]] bool present(const Node& node);
/// Returns whether the node can be given workers now.
[[nodiscard]] bool eligible(const Node& node);

/// Subsets of the nodes. One node may be in several.
enum class Subset {
    kJoined,      ///< not lost
    kPresent,     ///< present()
    kEligible,    ///< eligible()
    kNotBack,     ///< present members of the newest group that are not eligible
    kLostMember,  ///< lost members of the newest group
    kSetAside,    ///< connected, and set aside
    kBusy,        ///< joined, and may have processes
    kCount,       ///< the number of subsets
};

/// A node in a subset. They are in natural order of their host names, then in that of their ids.
struct NodeName {
    std::string host;
    NodeId id;
    friend bool operator<(const NodeName& left, const NodeName& right);
    friend bool operator==(const NodeName&, const NodeName&) = default;
};
using NodeNames = std::set<NodeName>;

class NodeTable {
public:
    using Nodes = std::map<NodeId, Node>;

    [[nodiscard]] Nodes::const_iterator begin() const { return nodes_.begin(); }
    [[nodiscard]] Nodes::const_iterator end() const { return nodes_.end(); }
    [[nodiscard]] std::size_t size() const { return nodes_.size(); }
    [[nodiscard]] bool contains(const NodeId& id) const { return nodes_.contains(id); }
    [[nodiscard]] Nodes::const_iterator find(const NodeId& id) const { return nodes_.find(id); }
    [[nodiscard]] const Node& at(const NodeId& id) const { return nodes_.at(id); }

    [[nodiscard]] const NodeNames& of(Subset subset) const { return subsets_[index(subset)]; }
    [[nodiscard]] int count(Subset subset) const { return static_cast<int>(of(subset).size()); }
    /// Returns whether a joined node other than `id` has this host name.
    [[nodiscard]] bool is_taken(const std::string& host, const NodeId& id) const;
    /// Returns the number of joined nodes whose names are `host`, "#" and a number.
    [[nodiscard]] int count_numbered(const std::string& host) const;
    /// Returns whether a node, which may be lost, has a program of this role.
    [[nodiscard]] bool has_role(const std::string& role) const { return roles_.contains(role); }

    /// Adds a node that has no id of a node in the table.
    void add(const NodeId& id, Node node);
    void erase(const NodeId& id);
    /// Replaces Node::join, which change() must not touch.
    void set_join(const NodeId& id, Join join);
    /// Calls `change(Node&)`, which leaves Node::join alone. `change` must not look at the table.
    template <typename Change>
    void change(const NodeId& id, Change change) {
        change_node(*nodes_.find(id), change);
    }
    template <typename Change>
    void change(Nodes::const_iterator node, Change change) {
        change_node(*nodes_.erase(node, node), change);  // erases nothing: returns an iterator that may change it
    }
    template <typename Change>
    void change_all(Change change) {
        for (auto& entry : nodes_) change_node(entry, change);
    }

    /// Returns whether the subsets are those of the nodes. For tests: it looks at all of them.
    [[nodiscard]] bool is_consistent() const;

private:
    static constexpr std::size_t kSubsets = static_cast<std::size_t>(Subset::kCount);
    using Subsets = std::bitset<kSubsets>;

    static std::size_t index(Subset subset) { return static_cast<std::size_t>(subset); }
    static Subsets subsets_of(const Node& node);
    void move(const NodeId& id, const Node& node, Subsets before, Subsets after);
    void count_roles(const Join& join, int change);

    template <typename Change>
    void change_node(Nodes::value_type& entry, Change& change) {
        const Subsets before = subsets_of(entry.second);
        change(entry.second);
        const Subsets after = subsets_of(entry.second);
        if (before != after) move(entry.first, entry.second, before, after);
    }

    Nodes nodes_;
    std::array<NodeNames, kSubsets> subsets_;
    std::map<std::string, int> numbered_;  ///< by the name before "#"
    std::map<std::string, int> roles_;     ///< programs of all nodes
};

}  // namespace ddprun::coordinator
