#include "rendezvous/coordinator/waiting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "rendezvous/coordinator/growth.hpp"
#include "rendezvous/coordinator/hosts.hpp"
#include "rendezvous/coordinator/natural_order.hpp"
#include "rendezvous/coordinator/nodes.hpp"
#include "rendezvous/coordinator/running.hpp"

namespace ddprun::coordinator {
namespace {

using namespace std::chrono_literals;

constexpr auto kRepeatAfter = 5s;     // the same reason again
constexpr auto kMinInterval = 500ms;  // many nodes that join at once cause one message, not one each
constexpr std::size_t kMaxHostsNamed = 5;

/// A reason and its kind.
struct Reason {
    WaitKind kind;
    std::string text;
};

/// Returns the time for which a node has not been seen, as one of few values: a new text is a new line on consoles.
Duration rough(Duration silence) {
    constexpr std::array<Duration, 9> kSteps{10s, 20s, 40s, 1min, 2min, 5min, 10min, 30min, 1h};
    const auto above = std::ranges::upper_bound(kSteps, silence);
    return above == kSteps.begin() ? Duration::zero() : *std::prev(above);
}

/// Returns the lost members of the last group, except for those whose host has another ddprun here.
std::vector<NodeName> lost_members(const State& state) {
    std::vector<NodeName> lost;
    std::ranges::copy_if(state.nodes.of(Subset::kLostMember), std::back_inserter(lost),
                         [&](const NodeName& node) { return !state.nodes.is_taken(node.host, node.id); });
    return lost;
}

/// Returns " (n3 and n33 last seen over 40 s ago)" for those of `lost` that have been silent for the longest time,
/// without their names if they are all of `missing`; empty: that is not long.
std::string last_seen(const State& state, std::vector<NodeName> lost, std::size_t missing) {
    constexpr auto kAlike = 5s;  // else each would pass the steps of rough() by itself, with a text for each
    const auto heard_at = [&](const NodeName& node) { return state.nodes.at(node.id).heard_at; };
    std::ranges::sort(lost, {}, heard_at);
    std::vector<std::string> names;
    Duration silence{};  // of the one among them that was heard last
    for (const NodeName& node : lost) {
        if (heard_at(node) > heard_at(lost.front()) + kAlike) break;
        names.push_back(node.host);
        silence = rough(state.now - heard_at(node));
    }
    if (silence == Duration::zero()) return "";
    std::ranges::sort(names, natural_less);
    const std::string which = names.size() == missing ? "" : list_of(names, kMaxHostsNamed) + " ";
    return fmt::format(" ({}last seen over {} ago)", which,
                       silence < 1min ? seconds_text(silence) : duration_text(silence));
}

std::string_view short_name(std::string_view host) { return host.substr(0, host.find('.')); }

/// Returns the hosts of the scheduler's list from which no node is here.
std::vector<std::string> absent_hosts(const State& state) {
    std::set<std::string, std::less<>> here;
    for (const NodeName& node : state.nodes.of(Subset::kPresent)) here.emplace(short_name(node.host));
    std::vector<std::string> absent;
    std::ranges::copy_if(state.config.hosts, std::back_inserter(absent),
                         [&here](const std::string& host) { return !here.contains(short_name(host)); });
    return absent;
}

/// Returns ", missing: n12, n33, n47 (n33 last seen over 40 s ago)", of the nodes of the last group, or before the
/// first one of the scheduler's list; empty: none is.
std::string missing_text(const State& state) {
    const std::vector<NodeName> lost = lost_members(state);
    HostList missing;
    if (state.groups_started == 0 && !state.config.hosts.empty()) {
        missing.first = absent_hosts(state);
        missing.total = missing.first.size();
    } else {
        missing = hosts_of(state, Subset::kNotBack);
        missing.total += lost.size();
        for (const NodeName& node : lost) missing.first.push_back(node.host);
    }
    if (missing.total == 0) return "";
    std::ranges::sort(missing.first, natural_less);
    return fmt::format(", missing: {}{}", some_of(missing), last_seen(state, lost, missing.total));
}

/// Returns " (at most 300 s left)" of the wait for enough nodes, as one of few values; empty: it is all left, or
/// nearly.
std::string time_left(const State& state) {
    constexpr std::array<Duration, 8> kSteps{10s, 30s, 1min, 2min, 5min, 10min, 30min, 1h};
    const Duration total = state.config.join_timeout;
    const auto step = std::ranges::lower_bound(kSteps, state.round.since + total - state.now);
    if (step == kSteps.end() || *step >= total) return "";
    return fmt::format(" (at most {} left)", seconds_text(*step));
}

Reason gathering_reason(const State& state) {
    const JobShape& shape = *state.shape;
    const int here = state.nodes.count(Subset::kEligible);
    std::string text = shape.min_nodes == shape.max_nodes
                           ? fmt::format("{} of {} nodes are here", here, shape.max_nodes)
                           : fmt::format("{} of {} to {} nodes are here", here, shape.min_nodes, shape.max_nodes);
    text += missing_text(state);
    if (!state.cause.reason.empty()) text += fmt::format(" ({})", state.cause.reason);
    if (here >= shape.min_nodes && state.now < state.round.opens_at && state.early_ends > 1) {
        text += fmt::format("; a pause of {} before the next start, because the workers ended soon after the last {}",
                            rounded_seconds_text(state.round.opens_at - state.round.since),
                            counted(static_cast<std::size_t>(state.early_ends), "start"));
        return {WaitKind::kPause, std::move(text)};
    }
    if (here >= shape.min_nodes) {
        text += fmt::format("; waiting at most {} for more", seconds_text(state.config.last_call));
        return {WaitKind::kLastCall, std::move(text)};
    }
    if (state.groups_started > 0 && state.nodes.count(Subset::kPresent) < shape.min_nodes) {  // a node was lost
        text += fmt::format(
            "; waiting {}{} for another node in its place, which --rdzv-conf join_timeout=SECONDS changes: start "
            "ddprun there with the same options",
            seconds_text(state.config.join_timeout), time_left(state));
        text += hint_at_set_aside(state);
        return {WaitKind::kReplacement, std::move(text)};
    }
    text += fmt::format("; giving up after {}{}", seconds_text(state.config.join_timeout), time_left(state));
    return {WaitKind::kTooFew, std::move(text)};
}

/// Returns when spare nodes take part; a text that does not change while they wait.
std::string growth_text(const State& state) {
    if (static_cast<int>(state.group.members.size()) >= max_size(state)) return "";
    if (state.shape->scale_up != ScaleUp::kImmediate) return "; more take part after the next restart";
    const Duration pause = growth_pause(state);
    if (state.now < state.group.started_at + pause)
        return fmt::format("; it restarts with more when it has run for {}", seconds_text(pause));
    return "; it restarts with more when no further ones join";
}

Reason spare_reason(const State& state) {
    std::string text =
        fmt::format("spare: the job runs with {} of {} nodes", state.group.members.size(), state.shape->max_nodes);
    if (state.group.is_ending) return {WaitKind::kSpareOfEnding, text + ", and some of their workers have finished"};
    return {WaitKind::kSpare, text + growth_text(state)};
}

Reason stopping_reason(const State& state) {
    return {WaitKind::kStopping, fmt::format("the workers are being stopped ({}); still stopping: {}",
                                             state.cause.reason, some_of(hosts_of(state, Subset::kBusy)))};
}

/// Returns whether the job has few enough nodes to name them, and to report each change of their number at once.
bool has_few_nodes(const State& state) { return state.nodes.of(Subset::kPresent).size() <= kMaxHostsListed; }

/// Returns why this node waits, if that concerns it alone.
std::string own_reason(const State& state, const Node& node) {
    if (node.set_aside)
        return fmt::format("this node takes no part: {}. `ddpctl undrain {}` lets it take part again",
                           why_set_aside(state, node.join.host), node.join.host);
    if (state.phase != Phase::kRunning || !is_cooling_down(state, node)) return "";
    const Host& host = state.hosts.at(node.join.host);
    if (state.now < host.cut_off_until)
        return fmt::format(
            "spare: this node could not reach another one, and is left out for an hour. When the network between them "
            "is mended, `ddpctl undrain {}` lets it take part at once",
            node.join.host);
    return fmt::format("spare: this node has failed or was lost {}, and is left out for {}",
                       counted(static_cast<std::size_t>(host.strikes), "time"),
                       seconds_text(cool_down_end(state, node) - host.struck_at));
}

/// Returns the message for all waiting nodes. The callers fill in how long a node has waited. Precondition:
/// waiting_is_explained().
Explanation explain(const State& state) {
    Reason reason = state.phase == Phase::kGathering ? gathering_reason(state)
                    : state.phase == Phase::kRunning ? spare_reason(state)
                                                     : stopping_reason(state);
    Explanation explanation{.kind = reason.kind, .message = {}, .sent_at = {}};
    if (has_few_nodes(state)) explanation.message.present = hosts_of(state, Subset::kPresent).first;
    explanation.message.min_nodes = state.shape->min_nodes;
    explanation.message.max_nodes = state.shape->max_nodes;
    explanation.message.reason = std::move(reason.text);
    return explanation;
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
    t.state.nodes.change(id, [&](Node& explained) { explained.explained_at = t.state.now; });
}

}  // namespace

HostList hosts_of(const State& state, Subset subset) {
    const NodeNames& names = state.nodes.of(subset);
    HostList list;
    list.total = names.size();
    for (auto at = names.begin(); at != names.end() && list.first.size() < kMaxHostsListed; ++at)
        list.first.push_back(at->host);
    return list;
}

std::string some_of(const HostList& hosts) { return ddprun::some_of(hosts.first, kMaxHostsNamed, hosts.total); }

void explain_waiting(Transition& t) {
    State& state = t.state;
    if (!waiting_is_explained(state)) return;
    Explanation explanation = explain(state);
    const Explanation& before = state.explanation;
    const bool few = has_few_nodes(state);
    const bool changed =
        explanation.kind != before.kind || (few && (explanation.message.reason != before.message.reason ||
                                                    explanation.message.present != before.message.present));
    const bool to_all = changed && state.now - before.sent_at >= kMinInterval;
    if (changed || state.now >= state.due.explanation) {
        state.due.explanation = state.now + kRepeatAfter;  // of a node that is explained to now
        for (const auto& [id, node] : state.nodes) {
            if (!waits(state, id, node)) continue;
            if (to_all || state.now - node.explained_at >= kRepeatAfter) send_waiting(t, id, node, explanation.message);
            state.due.explanation = std::min(state.due.explanation, node.explained_at + kRepeatAfter);
        }
    }
    explanation.sent_at = to_all ? state.now : before.sent_at;
    if (to_all || !changed) state.explanation = std::move(explanation);
}

void explain_waiting_to(Transition& t, const NodeId& id) {
    const auto node = t.state.nodes.find(id);
    if (waiting_is_explained(t.state) && node != t.state.nodes.end() && waits(t.state, id, node->second)) {
        send_waiting(t, id, node->second, explain(t.state).message);
    }
}

}  // namespace ddprun::coordinator
