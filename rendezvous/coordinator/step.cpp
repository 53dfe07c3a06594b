#include <fmt/format.h>

#include <algorithm>

#include "common/overloaded.hpp"
#include "rendezvous/coordinator/transition.hpp"

namespace ddprun::coordinator {
namespace {

/// A daemon that was itself stopped for a while (SIGSTOP, a suspended machine) has heard nobody meanwhile. That time
/// counts for nobody's silence: else it would wake up and find everybody dead.
void forgive_own_pause(State& state, TimePoint now) {
    const Duration pause = now - state.now;
    if (pause <= std::max<Duration>(state.config.heartbeat_interval, 5 * kTickInterval)) return;
    for (auto& [id, node] : state.nodes) {
        if (node.link == Link::kConnected) node.heard_at += pause;
        if (node.link == Link::kDisconnected) node.vanished_at += pause;
    }
    state.cause.failed_at += pause;  // it is compared with the above, and with what comes later
    state.cause.failure_began += pause;
}

void send_heartbeats(Transition& t) {
    State& state = t.state;
    if (state.now < state.heartbeat_due) return;
    state.heartbeat_due = state.now + state.config.heartbeat_interval;
    for (const auto& [id, node] : state.nodes) {
        if (node.link == Link::kConnected) t.send(id, Heartbeat{});
    }
}

void receive(Transition& t, const NodeMessage& event) {
    if (const auto* message = std::get_if<Join>(&event.message)) return join(t, event.node, *message);
    const auto found = t.state.nodes.find(event.node);
    if (found == t.state.nodes.end() || found->second.link != Link::kConnected) {
        return t.say("ignored: a message from a node that is not connected");
    }
    found->second.heard_at = t.state.now;
    if (t.state.phase == Phase::kFinished) return;
    std::visit(Overloaded{
                   [](const Join&) {},  // handled above
                   [](const Heartbeat&) {},
                   [&](const WorkerFailed& m) { worker_failed(t, event.node, m); },
                   [&](const WorkerFinished& m) { worker_finished(t, event.node, m); },
                   [&](const GroupStopped& m) { group_ended(t, event.node, m.generation, false); },
                   [&](const GroupSucceeded& m) { group_ended(t, event.node, m.generation, true); },
                   [&](const Leave& m) { leave(t, event.node, m.signal); },
                   // The daemon's inquiries are about them, and change nothing here.
                   [](const Stalled&) {},
                   [](const ShownBoard&) {},
                   [](const Inspect&) {},
               },
               event.message);
}

void tick(Transition& t) {
    if (t.state.phase == Phase::kFinished) return;
    lose_overdue_nodes(t);
    if (t.state.phase == Phase::kStopping) conclude_if_stopped(t);  // it may have waited for a judgement
    if (t.state.phase == Phase::kFinished) return;
    gather(t);
    send_heartbeats(t);
    tell_waiting_nodes(t);
}

}  // namespace

const char* to_string(Phase phase) {
    switch (phase) {
        case Phase::kGathering: return "gathering";
        case Phase::kOpening: return "opening";
        case Phase::kRunning: return "running";
        case Phase::kStopping: return "stopping";
        case Phase::kFinished: return "finished";
    }
    return "unknown";
}

Step step(State state, const Event& event) {
    Transition t{std::move(state)};
    const TimePoint now = std::visit([](const auto& e) { return e.now; }, event);
    forgive_own_pause(t.state, now);
    t.state.now = now;
    std::visit(Overloaded{
                   [&](const NodeMessage& e) { receive(t, e); },
                   [&](const NodeDisconnected& e) { disconnected(t, e.node); },
                   [&](const StoreOpened& e) { store_opened(t, e); },
                   [&](const StoreFailed& e) { store_failed(t, e); },
                   [&](const Judging& e) { judging(t, e); },
                   [&](const Judged& e) { judged(t, e); },
                   [&](const Tick&) { tick(t); },
               },
               event);
    return Step{std::move(t.state), std::move(t.actions), std::move(t.reason)};
}

}  // namespace ddprun::coordinator
