#include "rendezvous/daemon/status.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <string_view>
#include <vector>

#include "common/job_limits.hpp"
#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "rendezvous/coordinator/growth.hpp"
#include "rendezvous/coordinator/hosts.hpp"
#include "rendezvous/coordinator/natural_order.hpp"
#include "rendezvous/coordinator/nodes.hpp"
#include "rendezvous/coordinator/waiting.hpp"

namespace ddprun::daemon {
namespace {

using namespace coordinator;
using namespace std::chrono_literals;

constexpr auto kSlowStop = 5s;     // a stop that takes longer needs attention
constexpr auto kRecent = 1h;       // a host that has ended a group since then needs attention
constexpr int kMaxRolesShown = 8;  // with their restarts

std::string ago(Duration age) { return duration_text(age) + " ago"; }
std::string in(Duration time) { return duration_text(std::max(time, Duration::zero())); }

/// What a node does.
struct Activity {
    std::string text;
    bool fine = false;  ///< it needs no attention
};

bool is_member(const State& state, const Node& node) {
    return (state.phase == Phase::kRunning || state.phase == Phase::kStopping) &&
           state.group.members.contains(node.join.node);
}

Activity activity_with_workers(const State& state, const Node& node, TimePoint now) {
    if (*node.busy != state.group.generation) return {"stopping its workers of an older generation"};
    if (state.phase == Phase::kRunning) return {"running", true};
    return {"stopping its workers", now - state.group.stopping_since < kSlowStop};
}

Activity activity_without_workers(const State& state, const Node& node, TimePoint now) {
    if (state.phase == Phase::kFinished) return {"done", true};
    if (node.set_aside) return {"set aside: " + why_set_aside(state, node.join.host)};
    if (is_member(state, node)) {
        if (state.phase == Phase::kStopping) return {"stopped", true};
        return {fmt::format("finished {}", ago(now - state.group.members.at(node.join.node).succeeded_at)), true};
    }
    if (is_cooling_down(state, node))
        return {fmt::format("left out for {}, unless the job needs it", in(cool_down_end(state, node) - now))};
    return {state.phase == Phase::kRunning ? "spare" : "waiting", true};
}

/// Returns "; has ended 2 worker groups, the last 3 min ago"; empty: it has not, or long ago.
std::string history(const State& state, const Node& node, TimePoint now) {
    const auto host = state.hosts.find(node.join.host);
    if (host == state.hosts.end() || host->second.strikes == 0 || now - host->second.struck_at > kRecent) return "";
    return fmt::format("; has ended {}, the last {}", counted(host->second.strikes, "worker group"),
                       ago(now - host->second.struck_at));
}

Activity activity_of(const State& state, const Node& node, TimePoint now) {
    const std::string heard = ", last heard " + ago(now - node.heard_at);
    const std::string aside = why_set_aside(state, node.join.host);
    if (node.link == Link::kLost)
        return {"lost" + heard + (node.busy ? "; it has not reported the end of its workers" : "") +
                (aside.empty() ? "" : "; set aside if it joins: " + aside)};
    if (node.link == Link::kDisconnected) return {"disconnected" + heard + "; it may come back"};
    Activity activity =
        node.busy ? activity_with_workers(state, node, now) : activity_without_workers(state, node, now);
    if (node.busy && node.set_aside) activity.text += ", then set aside: " + aside;
    if (node.leaving) activity.text += fmt::format(", leaving because of {}", signal_name(*node.leaving));
    const bool is_silent = now - node.heard_at > state.config.lost_after / 2;
    if (is_silent) activity.text += fmt::format("{} (lost after {})", heard, seconds_text(state.config.lost_after));
    const std::string ended = state.phase == Phase::kFinished ? "" : history(state, node, now);
    activity.text += ended;
    if (is_silent || node.leaving || node.set_aside || !ended.empty()) activity.fine = false;
    return activity;
}

NodeStatus status_of_node(const State& state, const Node& node, TimePoint now) {
    const Activity activity = activity_of(state, node, now);
    NodeStatus status{.host = node.join.host, .slots = slots_of(node.join)};
    status.state = activity.text;
    status.fine = activity.fine;
    // The workers of a lost node are frozen or dead, unless it was lost because it has not reported their end.
    status.busy = node.busy && (node.link != Link::kLost || node.overdue_since);
    if (is_member(state, node)) {
        const Assignment& assignment = state.group.members.at(node.join.node).assignment;
        status.node_rank = assignment.node_rank;
        status.rank_base = assignment.rank_base;
    }
    return status;
}

/// Returns the hosts that are set aside and have no ddprun now, such as one that was drained to be repaired.
std::vector<NodeStatus> absent_hosts(const State& state) {
    std::vector<NodeStatus> absent;
    for (const auto& [name, host] : state.hosts) {
        if (host.set_aside.empty()) continue;
        const bool here =
            std::ranges::any_of(state.nodes, [&](const auto& entry) { return entry.second.join.host == name; });
        if (here) continue;
        absent.push_back({.host = name, .state = "not here; set aside if it joins: " + host.set_aside});
    }
    return absent;
}

/// Returns the newest lost ddprun of each host that has none here: a host may be lost several times.
std::map<std::string_view, const Node*> lost_hosts(const State& state) {
    std::map<std::string_view, const Node*> lost;
    for (const auto& [id, node] : state.nodes) {
        if (node.link != Link::kLost || state.nodes.is_taken(node.join.host, id)) continue;
        const Node*& newest = lost[node.join.host];
        if (newest == nullptr || newest->heard_at < node.heard_at) newest = &node;
    }
    return lost;
}

/// Returns the reason that waiting nodes have been sent, with what the job waits for and until when.
std::string gathering_text(const State& state, TimePoint now) {
    const std::string waited = "waiting for nodes for " + duration_text(now - state.round.since);
    if (state.explanation.sent_at >= state.round.since) return waited + ": " + state.explanation.message.reason;
    return fmt::format("{}: {} of {} here", waited, state.nodes.count(Subset::kEligible), nnodes(*state.shape));
}

std::string running_text(const State& state, TimePoint now) {
    std::string text = fmt::format("running for {} with {} (--nnodes {})", duration_text(now - state.group.started_at),
                                   counted(state.group.members.size(), "node"), nnodes(*state.shape));
    if (const auto due = growth_due(state)) text += fmt::format("; restarts with more nodes in {}", in(*due - now));
    return text;
}

std::string stopping_text(const State& state, TimePoint now) {
    const HostList busy = hosts_of(state, Subset::kBusy);
    return fmt::format("stopping the workers for {}, {}: {}", duration_text(now - state.group.stopping_since),
                       busy.total > 0 ? "still on " + some_of(busy) : std::string("waiting for the diagnosis"),
                       state.cause.reason);
}

/// Returns "; restarts 1 of 3", of each role if there are several; empty: the job has none.
std::string restarts_text(const State& state) {
    std::vector<std::string> roles;
    for (const auto& [role, budget] : state.roles) {
        if (budget.max_restarts == 0) continue;
        roles.push_back(fmt::format("{} of {}{}", budget.spent, budget.max_restarts, of_role(state, role)));
    }
    return roles.empty() ? "" : "; restarts " + some_of(roles, kMaxRolesShown, roles.size());
}

std::string state_text(const State& state, TimePoint now) {
    if (!state.shape) return "waiting: no node has joined yet";
    switch (state.phase) {
        case Phase::kGathering: return gathering_text(state, now) + restarts_text(state);
        case Phase::kOpening: return "starting the workers" + restarts_text(state);
        case Phase::kRunning: return running_text(state, now) + restarts_text(state);
        case Phase::kStopping: return stopping_text(state, now) + restarts_text(state);
        case Phase::kFinished: return "over: " + state.verdict->reason;
    }
    return "";
}

/// Orders members by their rank, then the other nodes by their name.
bool is_before(const NodeStatus& left, const NodeStatus& right) {
    const auto rank = [](const NodeStatus& node) {
        return node.node_rank ? number(*node.node_rank) : std::numeric_limits<int>::max();
    };
    if (rank(left) != rank(right)) return rank(left) < rank(right);
    return natural_less(left.host, right.host);
}

}  // namespace

protocol::Status status_of(const State& state, TimePoint now) {
    protocol::Status status{.run_id = state.config.run_id, .generation = state.group.generation};
    if (state.shape) status.command = state.shape->launch.command;
    status.state = state_text(state, now);
    status.nodes = absent_hosts(state);
    for (const auto& [id, node] : state.nodes)
        if (node.link != Link::kLost) status.nodes.push_back(status_of_node(state, node, now));
    for (const auto& [host, node] : lost_hosts(state)) status.nodes.push_back(status_of_node(state, *node, now));
    std::ranges::sort(status.nodes, is_before);
    if (status.nodes.size() > kMaxNodes) status.nodes.resize(kMaxNodes);
    return status;
}

protocol::Status status_of(const Decisions& decisions, TimePoint now) {
    protocol::Status status = status_of(decisions.job(), now);
    for (const Decisions::Reason& reason : decisions.reasons()) {
        const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - reason.at);
        status.decisions.push_back({age, reason.text});
    }
    return status;
}

}  // namespace ddprun::daemon
