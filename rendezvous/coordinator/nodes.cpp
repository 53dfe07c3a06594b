#include "rendezvous/coordinator/nodes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "common/text/words.hpp"
#include "rendezvous/coordinator/admission.hpp"
#include "rendezvous/coordinator/gathering.hpp"
#include "rendezvous/coordinator/hosts.hpp"
#include "rendezvous/coordinator/natural_order.hpp"
#include "rendezvous/coordinator/notifications.hpp"
#include "rendezvous/coordinator/preemption.hpp"
#include "rendezvous/coordinator/running.hpp"
#include "rendezvous/coordinator/verdicts.hpp"
#include "rendezvous/coordinator/waiting.hpp"

namespace ddprun::coordinator {
namespace {

/// After the grace of its workers an agent kills them, which the kernel may delay: then its node is lost.
constexpr std::chrono::seconds kKillTime{10};

/// Returns for how long a member may stop its workers before its connection is closed. It is lost one `lost_after`
/// later, when its lease has ended.
Duration time_to_stop(const Node& node, const Config& config) {
    return node.join.stop_grace + std::max<Duration>(std::chrono::seconds(1), kKillTime - config.lost_after);
}

std::string overdue_text(const Node& node, const Config& config) {
    return fmt::format("it did not stop its workers within {}", seconds_text(time_to_stop(node, config)));
}

/// Sends a reconnected node the messages that it may have missed. A node that was lost may have processes of a group
/// that was given up: it gets an Abort, and takes part again only when it has answered.
void catch_up(Transition& t, const NodeId& id, const Node& node) {
    const State& state = t.state;
    if (!node.busy && node.leaving && !may_end_the_job(state)) return release(t, id);
    if (!node.busy) return available(t);
    const bool of_this_group = *node.busy == state.group.generation;
    if (of_this_group && !node.given_up && state.phase == Phase::kRunning) {
        t.send(id, state.group.members.at(id).assignment);
        repeat_notifications(t, id);
        repeat_notice(t, id);
    } else if (of_this_group && !node.given_up) {
        t.send(id, abort_for_cause(state, *node.busy));
    } else {
        t.send(id, Abort{*node.busy, fmt::format("{} was lost", name_node(node.join.host))});
    }
}

/// Returns a display name that no other node has: two ddpruns on one machine are two nodes. A node that reconnects
/// keeps the name that it had.
std::string unique_name(const State& state, const NodeId& id, const std::string& host) {
    const auto taken = [&](const std::string& name) { return state.nodes.is_taken(name, id); };
    const auto known = state.nodes.find(id);
    if (known != state.nodes.end() && !taken(known->second.join.host)) return known->second.join.host;
    if (!taken(host)) return host;
    const std::string prefix = host + "#";
    // The name of a node that was here before: what is known about it holds for its next ddprun.
    for (auto at = state.hosts.lower_bound(prefix); at != state.hosts.end() && at->first.starts_with(prefix); ++at)
        if (!taken(at->first)) return at->first;
    // Starts at the number of such nodes, not at 2: even with many nodes of one name, the first try succeeds.
    int number = 2 + state.nodes.count_numbered(host);
    while (taken(fmt::format("{}{}", prefix, number))) ++number;
    return fmt::format("{}{}", prefix, number);
}

/// A node that has a session had a connection: if it is not known any more it was lost, and forgotten since.
Welcome welcome_to(const State& state, const NodeId& id, const Join& join) {
    const auto known = state.nodes.find(id);
    const bool lost = known != state.nodes.end() ? known->second.given_up : join.session.has_value();
    return {.run_id = state.config.run_id,
            .heartbeat_interval = state.config.heartbeat_interval,
            .lost_after = state.config.lost_after,
            .reconnect_grace = state.config.reconnect_grace,
            .hold = state.config.hold,
            .node_name = join.host,
            .session = state.config.session,
            .records = true,
            .lost = lost,
            .worker_key = state.config.worker_key};
}

void reconnected(Transition& t, const NodeId& id, const Join& message) {
    State& state = t.state;
    state.nodes.set_join(id, message);
    state.nodes.change(id, [&](Node& node) {
        if (node.link == Link::kLost && !node.busy) node.idle_since = state.now;
        node.link = Link::kConnected;
        node.broken = false;
        node.heard_at = node.connected_at = state.now;  // not alive_at: what it repeats now happened before
        node.set_aside = !why_set_aside(state, message.host).empty();
    });
    t.note(fmt::format("{} reconnected", name_node(message.host)));
    catch_up(t, id, state.nodes.at(id));
}

/// Returns whether the worker ended by `signal`: schedulers signal every process of a job.
bool is_of_signal(const FailureReport& failure, int signal) {
    return failure.status.kind == ExitStatus::Kind::kSignaled && failure.status.number == signal;
}

/// Returns whether the failure that is being handled is one of this node's own workers, and did not come from the
/// signal that the node got: the worker's end is reported before the agent's own Leave.
bool failed_by_itself(const Cause& cause, const NodeId& id, int signal) {
    if (!cause.failure || cause.failed_node != id) return false;
    return !is_of_signal(*cause.failure, signal);
}

void forget_lost_nodes(State& state) {
    if (state.nodes.size() - state.nodes.of(Subset::kJoined).size() <= kMaxLostNodes) return;
    auto oldest = state.nodes.end();
    for (auto at = state.nodes.begin(); at != state.nodes.end(); ++at) {
        if (at->second.link != Link::kLost) continue;
        if (oldest == state.nodes.end() || at->second.vanished_at < oldest->second.vanished_at) oldest = at;
    }
    state.nodes.erase(NodeId(oldest->first));
}

/// Returns the loss of a node as a cause, together with the hosts whose loss is the cause so far.
Cause loss(const Cause& before, const Node& node, std::string_view why) {
    const std::string& host = node.join.host;
    Cause cause;
    cause.lost = before.lost;
    cause.began = std::min(before.began.value_or(node.vanished_at), node.vanished_at);
    if (before.lost.empty() || before.why_lost == why) cause.why_lost = why;
    if (!std::ranges::count(cause.lost, host)) cause.lost.push_back(host);
    const std::string nodes =
        cause.lost.size() == 1 ? name_node(cause.lost.front()) : fmt::format("nodes {}", list_of(cause.lost));
    cause.reason = fmt::format("{} {} lost{}{}", nodes, inflect(cause.lost.size(), "was", "were"),
                               cause.why_lost.empty() ? "" : ": ", cause.why_lost);
    return cause;
}

/// Returns when the node sent the message that came at `received`, at the latest. A healthy network brings an echo
/// within two intervals of its own number; a message that was held back follows an older one.
TimePoint sent_at(const State& state, const Node& node, TimePoint received) {
    return std::min(received, node.alive_at + 2 * state.config.heartbeat_interval);
}

void lose(Transition& t, const NodeId& id, std::string_view why) {
    const auto found = t.state.nodes.find(id);
    if (found == t.state.nodes.end()) return;  // released by the loss before this one
    const bool member = found->second.busy && *found->second.busy == t.state.group.generation;
    t.state.nodes.change(id, [](Node& node) {
        if (node.link == Link::kConnected) {  // nothing has closed its connection
            node.vanished_at = node.heard_at;
            node.broken = true;
        }
        node.given_up = node.busy.has_value();
        node.link = Link::kLost;
    });
    const Node lost = found->second;
    if (member && !lost.leaving) t.state.group.lost[lost.join.host] = lost.broken && !lost.overdue_since;
    const std::string reason = fmt::format("{} was lost: {}", name_node(lost.join.host), why);
    t.say(reason);
    if (lost.busy || lost.last_rank || may_look_for_daemon(t.state, lost)) {
        forget_lost_nodes(t.state);
    } else {
        t.state.nodes.erase(id);
    }
    Cause& cause = t.state.cause;
    switch (t.state.phase) {
        case Phase::kGathering:
            if (lost.last_rank) cause = loss(cause, lost, why);  // why the others wait now
            return gather(t);
        case Phase::kOpening: return;  // the members are chosen when the store is open
        case Phase::kRunning:
            if (member) stop_group(t, loss({}, lost, why));
            return;
        case Phase::kStopping:
            if (member && !lost.leaving && id != cause.failed_node) {
                if (!cause.lost.empty()) cause = loss(cause, lost, why);
                reconsider_cause(t, sent_at(t.state, lost, lost.heard_at), loss({}, lost, why));
            }
            return conclude_if_stopped(t);
        case Phase::kFinished: return;
    }
}

/// Returns the node of `host` whose connection was closed, if there is one: its agent has died, and a ddprun that is
/// started again there takes its name, and with it what is known about the host.
std::optional<NodeId> predecessor_on(const State& state, const std::string& host) {
    const NodeNames& joined = state.nodes.of(Subset::kJoined);
    const std::string last = host + "#~";
    for (auto at = joined.lower_bound({host, NodeId()}); at != joined.end() && !natural_less(last, at->host); ++at) {
        const Node& node = state.nodes.at(at->id);
        const bool is_of_host = at->host == host || at->host.starts_with(host + "#");
        if (is_of_host && node.link == Link::kDisconnected && !node.broken && !node.leaving) return at->id;
    }
    return std::nullopt;
}

/// Loses the predecessor of a node that has joined meanwhile, so that the job has that one.
void replace(Transition& t, const NodeId& predecessor) {
    const Node& node = t.state.nodes.at(predecessor);
    TimePoint& opens_at = t.state.round.opens_at;  // its guard may still be killing its workers
    if (node.busy) opens_at = std::max(opens_at, node.vanished_at + t.state.config.reconnect_grace);
    lose(t, predecessor, "its ddprun was started again");
}

}  // namespace

/// Before the first group no restart was spent: a role counts only while a node has it.
void forget_vanished_roles(State& state) {
    if (state.groups_started > 0) return;
    std::erase_if(state.roles, [&](const auto& role) { return !state.nodes.has_role(role.first); });
}

void join(Transition& t, const NodeId& id, const Join& message, bool beside_daemon) {
    State& state = t.state;
    forget_vanished_roles(state);
    const bool known = state.nodes.contains(id);
    if (Refusal refused = refusal(state, id, message); !refused.reason.empty()) {
        t.note(fmt::format("refused {}: {}", name_node(message.host), refused.reason));
        t.actions.push_back(Refuse{id, std::move(refused.reason), refused.try_again, refused.try_for});
        return;
    }
    state.alone_since.reset();  // also if the connection ends before the next tick
    std::optional<NodeId> predecessor;
    if (!known && state.phase != Phase::kFinished) predecessor = predecessor_on(state, message.host);
    Join named = message;
    named.host = predecessor ? state.nodes.at(*predecessor).join.host : unique_name(state, id, message.host);
    t.send(id, welcome_to(state, id, named));
    if (state.phase == Phase::kFinished) {                     // its connection broke before it got the verdict
        if (!known) state.nodes.add(id, Node{.join = named});  // it was lost, and forgotten
        state.nodes.change(id, [](Node& node) { node.link = Link::kConnected; });
        t.send(id, Finished{*state.verdict});
        return;
    }
    if (!state.shape) {
        state.shape = shape_of(message);
        state.round.since = state.now;
    }
    for (const Program& program : message.programs)
        state.roles.try_emplace(program.role, RestartBudget{program.max_restarts});
    state.round.newest_join = state.now;
    if (known) {
        reconnected(t, id, named);
    } else {
        Node node;
        node.join = named;
        node.heard_at = node.alive_at = node.connected_at = node.idle_since = state.now;
        node.beside_daemon = beside_daemon;
        node.set_aside = !why_set_aside(state, named.host).empty();
        state.nodes.add(id, std::move(node));
        t.note(fmt::format("{} joined with {}", name_node(named.host), counted(slots_of(named), "worker")));
        if (predecessor) replace(t, *predecessor);
        available(t);
    }
    explain_waiting_to(t, id);
}

TimePoint lost_at(const Node& node, const Config& config) {
    const TimePoint by_silence = node.heard_at + config.lost_after;
    if (node.link == Link::kConnected) return by_silence;
    const TimePoint by_end = node.vanished_at + config.reconnect_grace;
    return node.broken ? std::max(by_silence, by_end) : by_end;
}

bool may_look_for_daemon(const State& state, const Node& node) {
    if (node.link == Link::kConnected || !node.broken) return false;
    // No network is between the daemon and a node of its own host, but one that is killed with messages that it has not
    // read breaks its connection, too. The end of the daemon's starter shows which it was.
    if (state.starter_ended && node.beside_daemon) return false;
    return state.now < node.heard_at + kHoldsOfSearch * state.config.hold;
}

void disconnected(Transition& t, const NodeId& id, bool broken) {
    const auto found = t.state.nodes.find(id);
    if (found == t.state.nodes.end() || found->second.link != Link::kConnected) return;
    t.state.nodes.change(id, [&](Node& node) {
        node.link = Link::kDisconnected;
        node.vanished_at = t.state.now;
        node.broken = broken;
    });
    const Node& node = found->second;
    if (t.state.phase == Phase::kFinished) return;
    const Duration left = lost_at(node, t.state.config) - t.state.now;
    t.note(fmt::format("the connection of {} {}; it may reconnect within {}", name_node(node.join.host),
                       broken ? "broke" : "ended", rounded_seconds_text(left)));
    if (t.state.phase == Phase::kGathering) gather(t);
}

void leave(Transition& t, const NodeId& id, int signal) {
    State& state = t.state;
    if (state.nodes.at(id).leaving || state.phase == Phase::kFinished) return;
    state.nodes.change(id, [&](Node& node) { node.leaving = signal; });
    const Node& node = state.nodes.at(id);
    Departure departure{node.join.host, signal};
    t.say(describe(departure));
    const bool member = node.busy && *node.busy == state.group.generation;
    if (state.phase == Phase::kStopping && state.cause.failure && !is_of_signal(*state.cause.failure, signal))
        departure.failure = state.cause.reason;
    // A spare or parked node does not affect a running group when it leaves.
    if (!node.set_aside && (member || state.phase != Phase::kRunning)) state.departure = departure;
    if (!node.busy) release(t, id);
    if (state.phase == Phase::kGathering) return gather(t);
    if (state.phase == Phase::kStopping && member && !failed_by_itself(state.cause, id, signal)) {
        reconsider_cause(t, sent_at(state, node, state.now), because(describe(departure)));
    }
    if (state.phase != Phase::kRunning || !member) return;  // kStopping: decided when nothing runs any more

    Cause cause = because(describe(departure));
    if (const int left = state.nodes.count(Subset::kPresent); left < state.shape->min_nodes) {
        cause.verdict = stopped_verdict(departure, left, *state.shape, &state.group);
        cause.signal = signal;
    }
    stop_group(t, std::move(cause));
}

void release(Transition& t, const NodeId& id) {
    const Node& node = t.state.nodes.at(id);
    Verdict verdict = stopped_verdict({node.join.host, *node.leaving}, 0, *t.state.shape);
    verdict.restarts = restarts_spent(t.state);
    t.send(id, Finished{std::move(verdict)});
    t.actions.push_back(Disconnect{id});
    if (t.state.group.members.contains(id))
        for (const Program& program : node.join.programs) t.state.group.left_roles.insert(program.role);
    t.state.nodes.erase(id);
}

/// Loses the nodes that were silent for too long, or whose connection has ended for too long. If no node is heard, the
/// daemon is cut off and no node could go on: then the limit is `hold`, for which the nodes wait for the daemon, and
/// the usual limit begins again when the first node is back. A job of one node is such a case.
void lose_silent_nodes(Transition& t) {
    State& state = t.state;
    const Config& config = state.config;
    const bool any_heard = std::ranges::any_of(state.nodes, [&](const auto& entry) {
        const Node& node = entry.second;  // one that could go on without those that are silent
        // Not lost_after: nodes speak at different moments, and a cut of all must not look like the loss of one.
        return node.link == Link::kConnected && present(node) &&
               state.now < node.heard_at + 2 * config.heartbeat_interval;
    });
    if (!any_heard) state.all_silent_at = state.now;
    if (state.now < state.due.loss) return;
    state.due.loss = state.now + config.lost_after;  // of a node that is heard now
    const bool cut_off = state.all_silent_at && state.now < *state.all_silent_at + config.lost_after;
    std::vector<NodeId> silent;
    std::map<NodeId, std::string> expired;
    for (const auto& [id, node] : t.state.nodes) {
        if (node.link == Link::kLost) continue;
        state.due.loss = std::min(state.due.loss, lost_at(node, config));
        if (t.state.now < lost_at(node, config)) continue;
        const bool is_closed = node.link == Link::kDisconnected && !node.broken;
        if (!is_closed && cut_off && t.state.now < node.heard_at + config.hold) continue;
        if (node.link == Link::kConnected)
            silent.push_back(id);
        else
            expired.emplace(id, node.overdue_since ? overdue_text(node, config)
                                : node.broken      ? "the connection broke"
                                                   : "connection closed");
    }
    const std::string silence =
        fmt::format("no message for {}", seconds_text(any_heard ? config.lost_after : config.hold));
    // Closed connections come first: they are the more certain sign, and the first loss becomes the reason.
    for (const auto& [id, why] : expired) lose(t, id, why);
    for (const NodeId& id : silent) {
        t.actions.push_back(Disconnect{id});
        lose(t, id, silence);
    }
}

/// An agent that speaks, but does not report the end of its workers, would hold all others. At first its connection is
/// closed: then its lease ends, and it freezes them; or it connects again, and kills them.
void lose_unstopped_nodes(Transition& t) {
    State& state = t.state;
    if (state.phase != Phase::kStopping) return;
    const Config& config = state.config;
    std::vector<NodeId> late;
    for (const auto& [id, member] : state.group.members) {
        const auto found = state.nodes.find(id);
        if (found == state.nodes.end()) continue;
        const Node& node = found->second;
        if (node.link == Link::kLost || node.busy != state.group.generation) continue;
        // One that was cut off has the order since it is back.
        const TimePoint since = state.group.stopping_since;
        const TimePoint ordered = std::clamp(node.connected_at, since, since + config.lost_after);
        if (!node.overdue_since && state.now < ordered + time_to_stop(node, config)) continue;
        if (node.overdue_since) {
            if (state.now >= *node.overdue_since + config.lost_after) late.push_back(id);
            continue;
        }
        if (node.link == Link::kConnected) t.actions.push_back(Disconnect{id});
        state.nodes.change(id, [&](Node& overdue) {
            overdue.overdue_since = state.now;
            overdue.given_up = true;
            if (overdue.link != Link::kConnected) return;
            overdue.link = Link::kDisconnected;
            overdue.vanished_at = state.now;
            overdue.broken = true;
        });
    }
    for (const NodeId& id : late) {
        const auto node = state.nodes.find(id);
        if (state.phase != Phase::kStopping || node == state.nodes.end()) continue;  // by the loss before this one
        if (node->second.link == Link::kConnected) t.actions.push_back(Disconnect{id});
        lose(t, id, overdue_text(node->second, config));
    }
}

}  // namespace ddprun::coordinator
