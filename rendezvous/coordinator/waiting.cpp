#include "rendezvous/coordinator/waiting.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "rendezvous/coordinator/growth.hpp"
#include "rendezvous/coordinator/hosts.hpp"
#include "rendezvous/coordinator/nodes.hpp"
#include "rendezvous/coordinator/ranks.hpp"
#include "rendezvous/coordinator/running.hpp"

namespace ddprun::coordinator {
namespace {

using namespace std::chrono_literals;

constexpr auto kRepeatAfter = 5s;     // the same reason again
constexpr auto kMinInterval = 500ms;  // many nodes that join at once cause one message, not one each
constexpr std::size_t kMaxHostsNamed = 5;

bool is_stopping(const Node& node) { return node.link != Link::kLost && node.busy.has_value(); }

bool not_back_yet(const Node& node) { return node.last_rank && present(node) && !eligible(node); }

std::string gathering_reason(const State& state) {
    const JobShape& shape = *state.shape;
    const int here = count_eligible(state);
    std::string text = shape.min_nodes == shape.max_nodes
                           ? fmt::format("{} of {} nodes are here", here, shape.max_nodes)
                           : fmt::format("{} of {} to {} nodes are here", here, shape.min_nodes, shape.max_nodes);
    if (!state.cause.reason.empty()) text += fmt::format(" ({})", state.cause.reason);
    if (here >= shape.min_nodes && state.now < state.round.opens_at) {
        text += fmt::format("; a pause of {} before the next start, because the workers ended soon after the last {}",
                            rounded_seconds_text(state.round.opens_at - state.round.since),
                            counted(static_cast<std::size_t>(state.early_ends), "start"));
    } else if (here >= shape.min_nodes) {
        text += fmt::format("; waiting at most {} for more", seconds_text(state.config.last_call));
    } else if (state.groups_started > 0 && count_present(state) < shape.min_nodes) {  // a node was lost
        text += fmt::format(
            "; waiting {} for another node in its place, which --rdzv-conf join_timeout=SECONDS changes: start ddprun "
            "there with the same options",
            seconds_text(state.config.join_timeout));
        text += hint_at_set_aside(state);
    } else {
        text += fmt::format("; giving up after {}", seconds_text(state.config.join_timeout));
    }
    const HostList late = hosts_of(state, not_back_yet);
    if (late.total > 0) text += fmt::format("; not back yet: {}", some_of(late));
    return text;
}

/// Returns when spare nodes take part; a text that does not change while they wait.
std::string growth_text(const State& state) {
    if (static_cast<int>(state.group.members.size()) >= max_size(state)) return "";
    if (state.shape->scale_up != ScaleUp::kImmediate) return "; more take part after the next restart";
    const auto due = growth_due(state);
    if (!due) return "";
    if (*due == state.group.started_at + growth_pause(state))
        return fmt::format("; it restarts with more when it has run for {}", seconds_text(growth_pause(state)));
    return "; it restarts with more when no further ones join";
}

std::string spare_reason(const State& state) {
    std::string text =
        fmt::format("spare: the job runs with {} of {} nodes", state.group.members.size(), state.shape->max_nodes);
    return text + (is_ending(state.group) ? ", and some of their workers have finished" : growth_text(state));
}

/// Returns why this node waits, if that concerns it alone.
std::string own_reason(const State& state, const Node& node) {
    if (node.set_aside)
        return fmt::format("this node takes no part: {}. `ddpctl undrain {}` lets it take part again",
                           why_set_aside(state, node.join.host), node.join.host);
    if (state.phase != Phase::kRunning || !is_cooling_down(state, node)) return "";
    const Host& host = state.hosts.at(node.join.host);
    return fmt::format("spare: this node has failed or was lost {}, and is left out for {}",
                       counted(static_cast<std::size_t>(host.strikes), "time"),
                       seconds_text(cool_down_end(state, node) - host.struck_at));
}

/// Returns the message for all waiting nodes. The callers fill in how long a node has waited.
Waiting explain(const State& state) {
    Waiting waiting;
    waiting.present = hosts_of(state, present).first;
    waiting.min_nodes = state.shape->min_nodes;
    waiting.max_nodes = state.shape->max_nodes;
    if (state.phase == Phase::kGathering) waiting.reason = gathering_reason(state);
    if (state.phase == Phase::kRunning) waiting.reason = spare_reason(state);
    if (state.phase == Phase::kStopping) {
        waiting.reason = fmt::format("the workers are being stopped ({}); still stopping: {}", state.cause.reason,
                                     some_of(hosts_of(state, is_stopping)));
    }
    return waiting;
}

bool waits(const State& state, const NodeId& id, const Node& node) {
    const bool parked = state.phase == Phase::kRunning && state.group.members.contains(id);
    return node.link == Link::kConnected && !node.leaving && !node.busy && !parked;
}

/// Returns whether waiting nodes get a reason in this phase. kOpening is short, and in kFinished they get the verdict.
bool waiting_is_explained(const State& state) {
    return state.shape && state.phase != Phase::kOpening && state.phase != Phase::kFinished;
}

void send_waiting(Transition& t, const NodeId& id, const Node& node, Waiting waiting) {
    if (std::string own = own_reason(t.state, node); !own.empty()) waiting.reason = std::move(own);
    waiting.waited = std::chrono::duration_cast<std::chrono::milliseconds>(t.state.now - node.idle_since);
    t.send(id, std::move(waiting));
}

}  // namespace

HostList hosts_of(const State& state, bool (*wanted)(const Node&)) {
    std::vector<const std::string*> hosts;
    for (const auto& [id, node] : state.nodes) {
        if (wanted(node)) hosts.push_back(&node.join.host);
    }
    HostList list;
    list.total = hosts.size();
    const auto end = hosts.begin() + static_cast<std::ptrdiff_t>(std::min(hosts.size(), kMaxHostsListed));
    std::ranges::partial_sort(hosts, end,
                              [](const auto* left, const auto* right) { return natural_less(*left, *right); });
    std::for_each(hosts.begin(), end, [&](const std::string* host) { list.first.push_back(*host); });
    return list;
}

std::string some_of(const HostList& hosts) { return ddprun::some_of(hosts.first, kMaxHostsNamed, hosts.total); }

void explain_waiting(Transition& t) {
    State& state = t.state;
    if (!waiting_is_explained(state)) return;
    if (state.now - state.explanation.sent_at < kMinInterval) return;
    Waiting waiting = explain(state);
    const bool changed =
        waiting.reason != state.explanation.message.reason || waiting.present != state.explanation.message.present;
    if (!changed && state.now - state.explanation.sent_at < kRepeatAfter) return;
    for (const auto& [id, node] : state.nodes) {
        if (waits(state, id, node)) send_waiting(t, id, node, waiting);
    }
    state.explanation.message = std::move(waiting);
    state.explanation.sent_at = state.now;
}

void explain_waiting_to(Transition& t, const NodeId& id) {
    const auto node = t.state.nodes.find(id);
    if (waiting_is_explained(t.state) && node != t.state.nodes.end() && waits(t.state, id, node->second)) {
        send_waiting(t, id, node->second, explain(t.state));
    }
}

}  // namespace ddprun::coordinator
