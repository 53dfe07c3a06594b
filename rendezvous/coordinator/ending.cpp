#include "rendezvous/coordinator/ending.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "common/exit_codes.hpp"
#include "common/text/number.hpp"
#include "rendezvous/coordinator/nodes.hpp"
#include "rendezvous/coordinator/verdicts.hpp"

namespace ddprun::coordinator {
namespace {

/// The linger time of a daemon whose starter has ended before any agent has joined. Not 0: another ddprun may have
/// found the daemon on its port, and be about to connect.
constexpr std::chrono::milliseconds kUnusedLinger{300};

/// Returns until when the daemon waits for a node that is not connected. An agent whose connection the network broke
/// may dial, also if its node counts as lost, but the next job may need the port soon.
TimePoint may_dial_until(const State& state, const Node& node) {
    const TimePoint by_end = node.vanished_at + state.config.reconnect_grace;
    if (!node.broken) return by_end;
    return std::max(by_end, std::min(node.heard_at + kHoldsOfSearch * state.config.hold,
                                     state.finished_at + state.config.lost_after));
}

/// Returns whether a node that was not connected when the job ended may still come to get the verdict. A node that got
/// a signal does not: its agent ends by itself after its workers.
bool verdict_is_missed(const State& state) {
    return std::ranges::any_of(state.nodes, [&](const auto& entry) {
        const Node& node = entry.second;
        const bool has_left = node.leaving && !node.busy;
        return node.link != Link::kConnected && !has_left && node.vanished_at <= state.finished_at &&
               state.now < may_dial_until(state, node);
    });
}

void give_verdict(Transition& t, Verdict verdict) {
    State& state = t.state;
    verdict.restarts = restarts_spent(state);
    state.phase = Phase::kFinished;
    state.finished_at = state.now;
    for (const auto& [id, node] : state.nodes) {
        if (node.link == Link::kConnected) t.send(id, Finished{verdict});
    }
    state.verdict = std::move(verdict);
}

void end_daemon(Transition& t, int exit_code) {
    if (!std::exchange(t.state.daemon_ends, true)) t.actions.push_back(EndDaemon{exit_code});
}

}  // namespace

void finish(Transition& t, Verdict verdict) {
    assert(t.state.phase == Phase::kGathering && "the store of the group must be closed first");
    t.say("the job is over: " + verdict.reason);
    give_verdict(t, std::move(verdict));
    end_after_verdict(t);
}

void end_after_verdict(Transition& t) {
    if (!verdict_is_missed(t.state)) end_daemon(t, exit_code::kSuccess);
}

void end_if_deserted(Transition& t) {
    State& state = t.state;
    const bool any_connected =
        std::ranges::any_of(state.nodes, [](const auto& entry) { return entry.second.link == Link::kConnected; });
    if (any_connected) return state.alone_since.reset();
    if (!state.alone_since) state.alone_since = state.now;
    const bool unused = state.starter_ended && !state.shape;  // no agent has joined, and the starter's never will
    const auto linger = unused ? std::min(kUnusedLinger, state.config.linger) : state.config.linger;
    const bool any_cut_off =
        std::ranges::any_of(state.nodes, [&](const auto& entry) { return may_look_for_daemon(state, entry.second); });
    if (state.daemon_ends || any_cut_off || state.now - *state.alone_since < linger) return;
    t.say(fmt::format("no agent was connected for {}: the daemon ends", seconds_text(linger)));
    end_daemon(t, exit_code::kInfrastructure);
}

void stop_requested(Transition& t, const StopRequested& event) {
    if (t.state.phase == Phase::kFinished)
        return end_daemon(t, exit_code::kSuccess);  // connected nodes have the verdict
    t.say(fmt::format("stopped by {}", signal_name(event.signal)));
    Verdict verdict = daemon_stopped_verdict(event.signal);
    const int exit_code = verdict.exit_code;
    give_verdict(t, std::move(verdict));
    end_daemon(t, exit_code);
}

}  // namespace ddprun::coordinator
