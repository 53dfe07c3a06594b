#include "rendezvous/coordinator/node_table.hpp"

#include <algorithm>
#include <cassert>

#include "rendezvous/coordinator/natural_order.hpp"

namespace ddprun::coordinator {
namespace {

/// Returns "vm" of "vm#2"; empty: the name has no number of that kind.
std::string numbered_host(const std::string& host) {
    const auto mark = host.rfind('#');
    return mark == std::string::npos ? "" : host.substr(0, mark);
}

/// Adds `change` to the number of `key`. The map holds no zeros.
void add_to(std::map<std::string, int>& numbers, const std::string& key, int change) {
    const auto at = numbers.try_emplace(key, 0).first;
    at->second += change;
    if (at->second == 0) numbers.erase(at);
}

}  // namespace

bool present(const Node& node) {
    return node.link != Link::kLost && !node.leaving && !node.set_aside && !node.overdue_since;
}

bool eligible(const Node& node) { return node.link == Link::kConnected && present(node) && !node.busy; }

bool operator<(const NodeName& left, const NodeName& right) {
    if (left.host != right.host) return natural_less(left.host, right.host);
    return left.id < right.id;
}

bool NodeTable::is_taken(const std::string& host, const NodeId& id) const {
    const NodeNames& joined = of(Subset::kJoined);
    for (auto at = joined.lower_bound({host, ""}); at != joined.end() && at->host == host; ++at)
        if (at->id != id) return true;
    return false;
}

int NodeTable::count_numbered(const std::string& host) const {
    const auto found = numbered_.find(host);
    return found == numbered_.end() ? 0 : found->second;
}

void NodeTable::add(const NodeId& id, Node node) {
    const auto [at, is_new] = nodes_.emplace(id, std::move(node));
    assert(is_new);
    count_roles(at->second.join, 1);
    move(id, at->second, {}, subsets_of(at->second));
}

void NodeTable::erase(const NodeId& id) {
    const auto at = nodes_.find(id);
    move(id, at->second, subsets_of(at->second), {});
    count_roles(at->second.join, -1);
    nodes_.erase(at);
}

void NodeTable::set_join(const NodeId& id, Join join) {
    Node node = at(id);
    erase(id);
    node.join = std::move(join);
    add(id, std::move(node));
}

NodeTable::Subsets NodeTable::subsets_of(const Node& node) {
    const bool joined = node.link != Link::kLost;
    Subsets subsets;
    subsets[index(Subset::kJoined)] = joined;
    subsets[index(Subset::kPresent)] = present(node);
    subsets[index(Subset::kEligible)] = eligible(node);
    subsets[index(Subset::kNotBack)] = node.last_rank && present(node) && !eligible(node);
    subsets[index(Subset::kLostMember)] = node.last_rank && !joined;
    subsets[index(Subset::kSetAside)] = node.set_aside && node.link == Link::kConnected;
    subsets[index(Subset::kBusy)] = joined && node.busy;
    return subsets;
}

void NodeTable::move(const NodeId& id, const Node& node, Subsets before, Subsets after) {
    const NodeName name{node.join.host, id};
    for (std::size_t i = 0; i < kSubsets; ++i) {
        if (after[i] && !before[i]) subsets_[i].insert(name);
        if (before[i] && !after[i]) subsets_[i].erase(name);
    }
    const int joined =
        static_cast<int>(after[index(Subset::kJoined)]) - static_cast<int>(before[index(Subset::kJoined)]);
    const std::string host = numbered_host(name.host);
    if (joined != 0 && !host.empty()) add_to(numbered_, host, joined);
}

void NodeTable::count_roles(const Join& join, int change) {
    for (const Program& program : join.programs) add_to(roles_, program.role, change);
}

bool NodeTable::is_consistent() const {
    NodeTable fresh;
    for (const auto& [id, node] : nodes_) fresh.add(id, node);
    return fresh.subsets_ == subsets_ && fresh.numbered_ == numbered_ && fresh.roles_ == roles_;
}

}  // namespace ddprun::coordinator
