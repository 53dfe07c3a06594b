#include "rendezvous/coordinator/ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <compare>
#include <cstdint>
#include <limits>
#include <set>
#include <tuple>

#include "common/text/number.hpp"
#include "rendezvous/coordinator/growth.hpp"
#include "rendezvous/coordinator/hosts.hpp"
#include "rendezvous/coordinator/natural_order.hpp"
#include "rendezvous/coordinator/nodes.hpp"
#include "rendezvous/coordinator/waiting.hpp"

namespace ddprun::coordinator {
namespace {

constexpr int kNoRank = std::numeric_limits<int>::max();

/// Returns the rank that a node of this host had last.
std::optional<NodeRank> earlier_rank(const State& state, const Node& node) {
    const auto host = state.hosts.find(node.join.host);
    return host == state.hosts.end() ? std::nullopt : host->second.rank;
}

/// The order in which nodes are chosen. The first differing member decides.
struct Preference {
    int last_rank;       ///< of a member of the newest group
    int earlier_rank;    ///< of the host, unless a member has that rank now
    int requested_rank;  ///< by --node-rank
    const std::string* host;
    NodeId id;
};

bool operator<(const Preference& left, const Preference& right) {
    const auto ranks = [](const Preference& p) { return std::tuple(p.last_rank, p.earlier_rank, p.requested_rank); };
    if (const auto order = ranks(left) <=> ranks(right); order != 0) return order < 0;
    if (*left.host != *right.host) return natural_less(*left.host, *right.host);
    return left.id < right.id;
}

/// Sorts the nodes by preference.
void sort_by_preference(std::vector<NodeId>& ids, const State& state) {
    std::set<NodeRank> taken;
    for (const NodeId& id : ids)
        if (const auto rank = state.nodes.at(id).last_rank) taken.insert(*rank);
    std::vector<Preference> order;
    for (NodeId& id : ids) {
        const Node& node = state.nodes.at(id);
        const auto earlier = earlier_rank(state, node);
        order.push_back({node.last_rank ? number(*node.last_rank) : kNoRank,
                         earlier && !taken.contains(*earlier) ? number(*earlier) : kNoRank,
                         node.join.node_rank.value_or(kNoRank), &node.join.host, std::move(id)});
    }
    std::ranges::sort(order, [](const Preference& left, const Preference& right) { return left < right; });
    std::ranges::transform(order, ids.begin(), [](Preference& p) { return std::move(p.id); });
}

/// Returns "; n4 takes the place of n2" for the nodes in `candidates` that were not in the newest group, if others have
/// left it, or "; n2 is back"; else an empty text.
std::string replacements(const std::vector<NodeId>& candidates, const State& state) {
    HostList left;
    for (const auto& [id, member] : state.group.members) {
        if (std::ranges::find(candidates, id) != candidates.end()) continue;
        const auto known = state.nodes.find(id);
        ++left.total;
        if (known != state.nodes.end()) left.first.push_back(known->second.join.host);
    }
    std::ranges::sort(left.first, natural_less);
    HostList fresh;
    for (const NodeId& id : candidates) {
        const Node& node = state.nodes.at(id);
        if (node.last_rank) continue;
        ++fresh.total;
        fresh.first.push_back(node.join.host);
    }
    std::ranges::sort(fresh.first, natural_less);
    if (left.total == 0 || fresh.total == 0 || left.first.size() != left.total) return "";
    if (std::ranges::includes(left.first, fresh.first, natural_less))
        return fmt::format("; {} {} back", some_of(fresh), inflect(fresh.total, "is", "are"));
    return fmt::format("; {} {} the place of {}", some_of(fresh), inflect(fresh.total, "takes", "take"), some_of(left));
}

/// Returns the chosen nodes in the order of their new ranks.
std::vector<NodeId> assign_ranks(const std::vector<NodeId>& chosen, const State& state) {
    std::vector<NodeId> by_rank(chosen.size());
    std::vector<NodeId> rest = chosen;
    const auto assign = [&](auto wanted_rank) {  // to the nodes of `rest` whose wanted rank is free
        std::erase_if(rest, [&](const NodeId& id) {
            const std::optional<int> rank = wanted_rank(state.nodes.at(id));
            if (!rank || *rank < 0 || *rank >= static_cast<int>(by_rank.size())) return false;
            NodeId& holder = by_rank[static_cast<std::size_t>(*rank)];
            if (!holder.empty()) return false;
            holder = id;
            return true;
        });
    };
    const auto as_int = [](std::optional<NodeRank> rank) { return rank ? std::optional(number(*rank)) : std::nullopt; };
    assign([&](const Node& node) { return as_int(node.last_rank); });
    assign([&](const Node& node) { return as_int(earlier_rank(state, node)); });
    // At first the requested ranks, which need not be dense, are an order only.
    if (state.groups_started > 0) assign([](const Node& node) { return node.join.node_rank; });
    std::ranges::stable_partition(rest, [&](const NodeId& id) { return !state.nodes.at(id).last_rank; });
    auto next = rest.begin();
    for (NodeId& holder : by_rank)
        if (holder.empty()) holder = *next++;
    return by_rank;
}

}  // namespace

std::vector<NodeId> choose_members(const State& state) {
    std::vector<NodeId> chosen;
    for (const NodeName& node : state.nodes.of(Subset::kEligible)) chosen.push_back(node.id);
    const auto end_of = [&](const NodeId& id) { return cool_down_end(state, state.nodes.at(id)); };
    const auto cooling =
        std::ranges::stable_partition(chosen, [&](const NodeId& id) { return end_of(id) <= state.now; });
    std::ranges::stable_sort(cooling, {}, end_of);
    const std::size_t rested = chosen.size() - cooling.size();
    chosen.resize(std::min(chosen.size(), std::max(rested, static_cast<std::size_t>(state.shape->min_nodes))));
    sort_by_preference(chosen, state);
    chosen.resize(std::min(chosen.size(), static_cast<std::size_t>(max_size(state))));
    return chosen;
}

std::map<NodeId, Member> form_group(const std::vector<NodeId>& chosen, const State& state, int master_port) {
    assert(state.shape && static_cast<int>(chosen.size()) >= state.shape->min_nodes);
    const std::vector<NodeId> candidates = assign_ranks(chosen, state);
    Assignment assignment;
    assignment.generation = state.generation;
    assignment.node_count = static_cast<int>(candidates.size());
    assignment.master_port = master_port;
    assignment.restart_count = state.groups_started;
    assignment.steps_before = state.latest_step;
    std::int64_t max_restarts = 0;
    for (const auto& [role, budget] : state.roles) max_restarts += budget.max_restarts;
    assignment.max_restarts = static_cast<int>(std::min<std::int64_t>(max_restarts, std::numeric_limits<int>::max()));
    if (state.groups_started > 0) assignment.reason = state.cause.reason + replacements(candidates, state);
    if (const auto& failure = state.cause.failure) {
        const RestartBudget& budget = state.roles.at(failure->role);
        assignment.restart = {budget.spent, budget.max_restarts, state.roles.size() > 1 ? failure->role : ""};
    }
    assignment.world_size = 0;
    std::map<std::string, int> role_sizes;
    for (const NodeId& id : candidates) {
        for (const Program& program : state.nodes.at(id).join.programs) {
            assignment.world_size += program.slots;
            role_sizes[program.role] += program.slots;
        }
    }

    std::map<NodeId, Member> members;
    std::map<std::string, int> role_ranks;  // role → workers of the programs before
    for (const NodeId& id : candidates) {
        const Join& join = state.nodes.at(id).join;
        assignment.node_rank = NodeRank{static_cast<int>(members.size())};
        assignment.program_roles.clear();
        for (const Program& program : join.programs) {
            int& base = role_ranks[program.role];
            assignment.program_roles.push_back({base, role_sizes[program.role]});
            base += program.slots;
        }
        members[id] = Member{assignment};
        assignment.rank_base += slots_of(join);
    }
    return members;
}

}  // namespace ddprun::coordinator
