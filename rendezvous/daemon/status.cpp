#include "rendezvous/daemon/status.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "common/text/number.hpp"
#include "rendezvous/coordinator/hosts.hpp"
#include "rendezvous/coordinator/nodes.hpp"
#include "rendezvous/coordinator/ranks.hpp"

namespace ddprun::daemon {
namespace {

using namespace coordinator;
using std::chrono::duration_cast;
using std::chrono::milliseconds;

constexpr milliseconds kUnheard{1'500};  // a healthy node is heard more often

std::string ago(TimePoint now, TimePoint then) { return rounded_seconds_text(now - then) + " ago"; }

std::string what_it_does(const State& state, const Node& node, TimePoint now) {
    const bool in_group = node.busy && *node.busy == state.group.generation;
    if (node.link == Link::kLost) return "lost, last heard " + ago(now, node.heard_at);
    if (node.set_aside && !node.busy) return "set aside: " + state.hosts.at(node.join.host).set_aside;
    if (node.leaving) return "leaves";
    if (node.link == Link::kDisconnected) return "disconnected, last heard " + ago(now, node.heard_at);
    if (node.busy && !in_group) return "stops its workers of an older generation";
    if (in_group) return state.phase == Phase::kStopping ? "stops its workers" : "running";
    const auto member = state.group.members.find(node.join.node);
    if (state.phase == Phase::kRunning && member != state.group.members.end()) return "has finished";
    if (is_cooling_down(state, node))
        return fmt::format("left out for {} after {} in which it failed",
                           rounded_seconds_text(cool_down_end(state, node) - now),
                           counted(static_cast<std::size_t>(state.hosts.at(node.join.host).strikes), "group"));
    return state.phase == Phase::kRunning ? "spare" : "waits";
}

NodeStatus status_of(const State& state, const NodeId& id, const Node& node, TimePoint now) {
    NodeStatus status{.host = node.join.host, .slots = slots_of(node.join), .state = what_it_does(state, node, now)};
    const bool is_silent = node.link == Link::kConnected && now - node.heard_at > kUnheard;
    if (is_silent) status.state += ", last heard " + ago(now, node.heard_at);
    const auto member = state.group.members.find(id);
    const bool group_exists = state.phase == Phase::kRunning || state.phase == Phase::kStopping;
    if (group_exists && member != state.group.members.end()) {
        status.node_rank = member->second.assignment.node_rank;
        status.rank_base = member->second.assignment.rank_base;
    }
    return status;
}

std::string state_text(const State& state, TimePoint now) {
    if (!state.shape) return "no node has joined yet";
    const std::string of = fmt::format("--nnodes {}", nnodes(*state.shape));
    switch (state.phase) {
        case Phase::kGathering:
            return fmt::format("waits for nodes for {}: {} here ({})", rounded_seconds_text(now - state.round.since),
                               count_eligible(state), of);
        case Phase::kOpening:
            return state.store_retry ? "tries to open a store for the workers" : "is about to start its workers";
        case Phase::kRunning:
            return fmt::format("runs for {} with {} ({})", rounded_seconds_text(now - state.group.started_at),
                               counted(state.group.members.size(), "node"), of);
        case Phase::kStopping:
            return fmt::format("stops its workers for {}: {}", rounded_seconds_text(now - state.group.stopping_since),
                               state.cause.reason);
        case Phase::kFinished: return "is over: " + state.verdict->reason;
    }
    return "";
}

}  // namespace

protocol::Status status_of(const Decisions& decisions, TimePoint now) {
    const State& state = decisions.job();
    protocol::Status status{.run_id = state.config.run_id, .generation = state.group.generation};
    status.state = state_text(state, now);
    if (const int spent = restarts_spent(state); spent > 0)
        status.state += fmt::format("; {} so far", counted(static_cast<std::size_t>(spent), "restart"));
    for (const auto& [id, node] : state.nodes) status.nodes.push_back(status_of(state, id, node, now));
    const auto rank = [](const NodeStatus& node) {
        return node.node_rank ? number(*node.node_rank) : std::numeric_limits<int>::max();
    };
    std::ranges::sort(status.nodes, [&](const NodeStatus& left, const NodeStatus& right) {
        if (rank(left) != rank(right)) return rank(left) < rank(right);
        return natural_less(left.host, right.host);
    });
    if (status.nodes.size() > kMaxNodes) status.nodes.resize(kMaxNodes);
    for (const Decisions::Reason& reason : decisions.reasons())
        status.decisions.push_back({duration_cast<milliseconds>(now - reason.at), reason.text});
    return status;
}

}  // namespace ddprun::daemon
