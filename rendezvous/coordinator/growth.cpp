#include "rendezvous/coordinator/growth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "rendezvous/coordinator/hosts.hpp"
#include "rendezvous/coordinator/nodes.hpp"
#include "rendezvous/coordinator/preemption.hpp"
#include "rendezvous/coordinator/running.hpp"

namespace ddprun::coordinator {
namespace {

using namespace std::chrono_literals;

// A restart costs every worker its work since the last checkpoint, so nodes that come one after the other cost one.
constexpr auto kQuiet = 5s;     // since the newest node came
constexpr auto kMaxWait = 30s;  // after the first one, also while others still come
// The time for which a group runs before it is restarted to grow once more.
constexpr Duration kFirstPause = 60s;
constexpr Duration kMaxPause = 32min;

std::vector<const Node*> newcomers(const State& state) {
    std::vector<const Node*> nodes;
    for (const auto& [host, id] : state.nodes.of(Subset::kEligible)) {
        const Node& node = state.nodes.at(id);
        if (!is_cooling_down(state, node) && !state.group.members.contains(id)) nodes.push_back(&node);
    }
    return nodes;
}

}  // namespace

int max_size(const State& state) {
    const int max_nodes = state.shape->max_nodes;
    const bool may_grow = state.shape->scale_up != ScaleUp::kNever || state.groups_started == 0;
    return may_grow ? max_nodes : std::min(max_nodes, state.growth.first_size);
}

Duration growth_pause(const State& state) {
    if (state.growth.restarts == 0) return {};
    return std::min(kMaxPause, kFirstPause * (1 << std::min(state.growth.restarts - 1, 10)));
}

bool takes_last_place(const State& state) {
    if (state.phase != Phase::kRunning) return false;
    return state.nodes.count(Subset::kEligible) >= max_size(state) - static_cast<int>(state.group.members.size());
}

std::optional<TimePoint> growth_due(const State& state) {
    if (state.phase != Phase::kRunning || state.shape->scale_up != ScaleUp::kImmediate) return std::nullopt;
    const auto room = static_cast<std::ptrdiff_t>(max_size(state)) - std::ssize(state.group.members);
    if (room <= 0) return std::nullopt;
    const std::vector<const Node*> nodes = newcomers(state);
    if (state.group.is_ending || nodes.empty()) return std::nullopt;
    const auto came = [&](const Node* node) { return std::max(node->idle_since, cool_down_end(state, *node)); };
    const TimePoint first = came(*std::ranges::min_element(nodes, {}, came));
    const TimePoint last = came(*std::ranges::max_element(nodes, {}, came));
    // If the job has room for no more, nothing is gained by waiting.
    const TimePoint all_here = std::ssize(nodes) >= room ? last : std::min(last + kQuiet, first + kMaxWait);
    return std::max(all_here, state.group.started_at + growth_pause(state));
}

void grow(Transition& t) {
    State& state = t.state;
    const std::optional<TimePoint> due = growth_due(state);
    if (!due || state.now < *due || holds_growth(state)) return;
    std::vector<std::string> hosts;  // in the order of Subset
    for (const Node* node : newcomers(state)) hosts.push_back(node->join.host);
    const auto room = static_cast<std::size_t>(max_size(state)) - state.group.members.size();
    hosts.resize(std::min(hosts.size(), room));
    stop_group(t, because(fmt::format("{} {} joined", inflect(hosts.size(), "node", "nodes"), list_of(hosts))));
    ++state.growth.restarts;  // not before: stop_group() ends the row of a group that has lasted
}

}  // namespace ddprun::coordinator
