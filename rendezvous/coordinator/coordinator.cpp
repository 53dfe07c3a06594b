#include "rendezvous/coordinator/coordinator.hpp"

#include <algorithm>

#include "common/overloaded.hpp"
#include "rendezvous/coordinator/ending.hpp"
#include "rendezvous/coordinator/gathering.hpp"
#include "rendezvous/coordinator/growth.hpp"
#include "rendezvous/coordinator/hosts.hpp"
#include "rendezvous/coordinator/nodes.hpp"
#include "rendezvous/coordinator/notifications.hpp"
#include "rendezvous/coordinator/preemption.hpp"
#include "rendezvous/coordinator/running.hpp"
#include "rendezvous/coordinator/transition.hpp"
#include "rendezvous/coordinator/waiting.hpp"

namespace ddprun::coordinator {
namespace {

/// The heartbeats whose time of sending is remembered: an echo that is older says nothing of use.
constexpr std::size_t kMaxHeartbeatsRemembered = 64;

/// Excludes the time for which the daemon itself was stopped (SIGSTOP, a suspended machine) from every node's silence.
/// Otherwise it would find every node lost when it continues.
void forgive_own_pause(State& state, TimePoint now) {
    const Duration pause = now - state.now;
    if (pause <= 5 * kTickInterval) return;
    state.nodes.change_all([&](Node& node) {
        if (node.link != Link::kLost) node.heard_at += pause;
        if (node.link == Link::kDisconnected) node.vanished_at += pause;
        node.alive_at += pause;
    });
    for (TimePoint& sent : state.heartbeats_sent) sent += pause;
    for (Notification& sent : state.group.notifications) sent.at += pause;
    state.cause.failed_at += pause;  // compared with the times above, and with later ones
    state.cause.failure_began += pause;
    if (state.cause.began) *state.cause.began += pause;
    if (state.phase == Phase::kStopping) {  // the deadline moves, and the time that the group has run does not change
        state.group.stopping_since += pause;
        state.group.started_at += pause;
    }
    if (state.phase == Phase::kFinished) state.finished_at += pause;
    if (state.all_silent_at) *state.all_silent_at += pause;
    if (state.store_retry) state.store_retry->since += pause;
    if (state.alone_since) *state.alone_since += pause;  // agents may reconnect as soon as the daemon continues
}

void send_heartbeats(Transition& t) {
    State& state = t.state;
    if (state.now < state.heartbeat_due) return;
    state.heartbeat_due = state.now + state.config.heartbeat_interval;
    ++state.heartbeats;
    state.heartbeats_sent.push_back(state.now);
    if (state.heartbeats_sent.size() > kMaxHeartbeatsRemembered) state.heartbeats_sent.pop_front();
    for (const auto& [id, node] : state.nodes) {
        if (node.link == Link::kConnected) t.send(id, Heartbeat{state.heartbeats, node.heartbeat});
    }
}

/// Notes since when the node has been alive for sure. A heartbeat that the network held back has an old echo, however
/// late it comes.
void note_heartbeat(const State& state, Node& node, const Heartbeat& message) {
    node.heartbeat = std::max(node.heartbeat, message.number);
    const std::uint64_t age = state.heartbeats - message.heard;  // in heartbeats; of a number that was never sent: huge
    if (message.heard > 0 && age < state.heartbeats_sent.size())
        node.alive_at = std::max(node.alive_at, *(state.heartbeats_sent.rbegin() + static_cast<std::ptrdiff_t>(age)));
}

void receive(Transition& t, const NodeMessage& event) {
    if (const auto* message = std::get_if<Join>(&event.message))
        return join(t, event.node, *message, event.beside_daemon);
    const auto found = t.state.nodes.find(event.node);
    if (found == t.state.nodes.end() || found->second.link != Link::kConnected) {
        return t.say("ignored: a message from a node that is not connected");
    }
    t.state.nodes.change(found, [&](Node& node) {
        node.heard_at = t.state.now;
        if (const auto* beat = std::get_if<Heartbeat>(&event.message)) note_heartbeat(t.state, node, *beat);
    });
    if (t.state.phase == Phase::kFinished) return;
    const auto note_step = [&](const auto& latest) { t.state.latest_step = std::max(t.state.latest_step, latest); };
    std::visit(
        Overloaded{
            [](const Join&) {},       // handled above
            [](const Heartbeat&) {},  // noted above
            [&](const WorkerFailed& m) { worker_failed(t, event.node, m); },
            [&](const WorkerFinished& m) { worker_finished(t, event.node, m); },
            [&](const GroupStopped& m) {
                note_step(m.latest_step);
                group_ended(t, event.node, m.generation, false);
            },
            [&](const GroupSucceeded& m) {
                note_step(m.latest_step);
                group_ended(t, event.node, m.generation, true, m.preempted);
            },
            [&](const Leave& m) { leave(t, event.node, m.signal); }, [&](const Notify& m) { notify(t, event.node, m); },
            [&](const PreemptionNotice& m) { preemption_noticed(t, event.node, m); },
            [&](const StepsTaken& m) { steps_taken(t, event.node, m); },
            // Events of the inquiries (rendezvous/diagnosis/inquiry); they change nothing here.
            [](const Stalled&) {}, [](const RecordReply&) {}, [](const Inspect&) {},
            [](const Order&) {},  // comes as Ordered
            [](const Vouch&) {},  // concerns connections only
        },
        event.message);
}

/// Returns whether the event makes no node due before State::due. A new node has been heard and explained to just now.
bool keeps_due(const State& state, const Happening& what) {
    if (std::holds_alternative<Tick>(what)) return true;
    const auto* message = std::get_if<NodeMessage>(&what);
    if (message == nullptr) return false;
    const bool joins = std::holds_alternative<Join>(message->message) && !state.nodes.contains(message->node);
    return joins || std::holds_alternative<Heartbeat>(message->message);
}

Result<std::string> perform(Transition& t, const Order& order) {
    switch (order.command) {
        case Order::Command::kDrain: return drain(t, order.node);
        case Order::Command::kPreempt: return order_preemption(t, order.time_left);
        default: return undrain(t, order.node);
    }
}

void follow(Transition& t, const Order& order) {
    const Result<std::string> done = perform(t, order);
    t.actions.push_back(Reply{{.refused = !done, .text = done ? *done : done.error().message}});
}

void tick(Transition& t) {
    if (t.state.phase == Phase::kFinished) return end_after_verdict(t);
    lose_unstopped_nodes(t);
    lose_silent_nodes(t);
    end_overdue_preemption(t);
    if (t.state.phase == Phase::kStopping) conclude_if_stopped(t);  // it may have waited for a diagnosis
    if (t.state.phase == Phase::kFinished) return;
    retry_store(t);
    gather(t);
    grow(t);
    send_heartbeats(t);
    explain_waiting(t);
    if (t.state.phase != Phase::kFinished) end_if_deserted(t);
}

}  // namespace

Step step(State state, const Event& event) {
    Transition t{std::move(state)};
    forgive_own_pause(t.state, event.now);
    t.state.now = event.now;
    if (!keeps_due(t.state, event.what)) t.state.due = {};
    std::visit(Overloaded{
                   [&](const NodeMessage& e) { receive(t, e); },
                   [&](const NodeDisconnected& e) { disconnected(t, e.node, e.broken); },
                   [&](const StoreOpened& e) { store_opened(t, e); },
                   [&](const StoreFailed& e) { store_failed(t, e); },
                   [&](const DiagnosisPending& e) { diagnosis_pending(t, e); },
                   [&](const Diagnosed& e) { diagnosis(t, e); },
                   [&](const StopRequested& e) { stop_requested(t, e); },
                   [&](const StarterEnded&) {
                       t.state.starter_ended = true;
                       t.state.alone_since.reset();  // another program may have found the daemon on its port
                   },
                   [&](const NoMoreNodes& e) {
                       t.state.no_more_nodes = e.why;
                       gather(t);
                   },
                   [&](const Ordered& e) { follow(t, e.order); },
                   [&](const Tick&) { tick(t); },
               },
               event.what);
    return Step{std::move(t.state), std::move(t.actions), std::move(t.reason), std::move(t.decision)};
}

}  // namespace ddprun::coordinator
