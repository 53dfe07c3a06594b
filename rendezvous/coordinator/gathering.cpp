#include "rendezvous/coordinator/gathering.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "common/text/number.hpp"
#include "rendezvous/coordinator/ending.hpp"
#include "rendezvous/coordinator/growth.hpp"
#include "rendezvous/coordinator/hosts.hpp"
#include "rendezvous/coordinator/nodes.hpp"
#include "rendezvous/coordinator/preemption.hpp"
#include "rendezvous/coordinator/ranks.hpp"
#include "rendezvous/coordinator/running.hpp"
#include "rendezvous/coordinator/verdicts.hpp"
#include "rendezvous/coordinator/waiting.hpp"

namespace ddprun::coordinator {
namespace {

// Hints for verdicts that no worker has caused. If too few nodes joined at the start, the reason contains the hint.
constexpr const char* kStartWhenReachable = "Start the same command again when the job's nodes can reach each other";
constexpr const char* kLookAtLostNode =
    "Look for what ended the node or cut it off (the output of its ddprun, `dmesg` on its host, the network), then "
    "start the same command again";
constexpr const char* kLookAtAbsentNode =
    "Look at what the node that has ended has printed, then start the same command again";
constexpr const char* kMendDaemonHost =
    "The error is on the host of the rendezvous daemon: fix it there, then start the job again";

/// A momentary lack of descriptors or memory must not end a job.
constexpr std::chrono::seconds kStoreTriedFor{5};
constexpr std::chrono::milliseconds kStoreRetryAfter{250};

/// If several nodes come back one after the other, the next group waits for the last one.
constexpr std::chrono::seconds kQuietAfterReturn{1};

/// A daemon that waits for nodes which it has lost names them on the log that often.
constexpr std::chrono::seconds kReportReturnEvery{30};

/// Returns the nodes that do not count, but may look for the daemon yet, except for those whose host has another ddprun
/// here. If all nodes were lost, that is often because the network around the daemon's host was cut.
std::set<NodeName> may_come_back(const State& state) {
    std::set<NodeName> names;
    for (const auto& [id, node] : state.nodes) {
        if (present(node) || node.leaving || node.overdue_since) continue;
        if (may_look_for_daemon(state, node) && !state.nodes.is_taken(node.join.host, id))
            names.insert({node.join.host, id});
    }
    return names;
}

/// Returns whether every present member of the last group is waiting again that the next one may have, and none has
/// come just now while there is room for others. Then no other node is expected.
bool all_known_are_back(const State& state) {
    if (state.round.return_reported && !may_come_back(state).empty()) return false;
    const bool has_room = state.nodes.count(Subset::kEligible) < max_size(state);
    if (has_room && state.round.newest_join && state.now < *state.round.newest_join + kQuietAfterReturn) return false;
    return state.groups_started > 0 && std::ranges::all_of(state.nodes.of(Subset::kNotBack), [&](const NodeName& node) {
               return is_cooling_down(state, state.nodes.at(node.id));
           });
}

int count_rested(const State& state) {
    return static_cast<int>(std::ranges::count_if(state.nodes.of(Subset::kEligible), [&](const NodeName& node) {
        return !is_cooling_down(state, state.nodes.at(node.id));
    }));
}

std::string too_few(const State& state, int here) {
    const JobShape& shape = *state.shape;
    std::string text = fmt::format(
        "the job needs {} and {} here after {}{}; {} missing", counted(shape.min_nodes, "node"),
        here == 0   ? "none is"
        : here == 1 ? "1 is"
                    : fmt::format("only {} are", here),
        seconds_text(state.config.join_timeout), here == 0 ? "" : ": " + some_of(hosts_of(state, Subset::kEligible)),
        fmt::format("{} {}", shape.min_nodes - here, inflect(shape.min_nodes - here, "is", "are")));
    if (!state.cause.reason.empty()) text += fmt::format(" ({})", state.cause.reason);
    return text +
           ". Start ddprun on the missing nodes with the same --rdzv-endpoint, or wait longer with --rdzv-conf "
           "join_timeout=SECONDS";
}

/// Returns why no other node can take the place of a lost one; empty: one may join.
std::string no_replacement(const State& state) {
    if (!state.no_more_nodes.empty() || state.groups_started == 0) return state.no_more_nodes;
    const auto role =
        role_without_restart(state, [](const Node& node) { return node.link == Link::kLost || node.overdue_since; });
    if (!role) return "";
    const int max_restarts = state.roles.at(*role).max_restarts;
    if (max_restarts > 0)
        return fmt::format("no restart is left (--max-restarts {}{})", max_restarts, of_role(state, *role));
    return fmt::format(
        "it is not to be restarted (--max-restarts 0{}). With --max-restarts 1 they would wait for a ddprun that takes "
        "its place",
        of_role(state, *role));
}

/// Returns the reason of a job that ends because too few nodes are left, and `why` no others may join.
std::string too_few_left_text(const State& state, int here, std::string_view why) {
    const bool began = state.groups_started > 0;
    std::string text = state.cause.reason;
    if (text.empty() && began) text = "a node was lost";
    if (!text.empty()) text += "; ";
    text += fmt::format("the job needs {} and ", counted(static_cast<std::size_t>(state.shape->min_nodes), "node"));
    text += here == 0 ? (began ? "none is left" : "none is here")
                      : fmt::format("only {} {} {} ({})", here, inflect(here, "is", "are"), began ? "left" : "here",
                                    some_of(hosts_of(state, Subset::kPresent)));
    return text + fmt::format(", and {}", why);
}

void open_round(Transition& t, int nodes) {
    State& state = t.state;
    state.phase = Phase::kOpening;
    state.round.last_call_ends.reset();
    state.round.return_reported.reset();
    state.generation = next(state.generation);
    t.say(fmt::format("generation {} starts with {}", number(state.generation),
                      counted(static_cast<std::size_t>(nodes), "node")));
    t.actions.push_back(OpenStore{state.generation});
}

/// Forgets the lost nodes that have no process to stop. Their ranks are those of others now.
void forget_idle_lost_nodes(State& state) {
    std::vector<NodeId> ids;
    for (const auto& [id, node] : state.nodes)
        if (node.link == Link::kLost && !node.busy) ids.push_back(id);
    for (const NodeId& id : ids) state.nodes.erase(id);
}

bool any_is_set_aside(const State& state) { return state.nodes.count(Subset::kSetAside) > 0; }

bool too_few_are_left(const State& state) {
    const int here = state.nodes.count(Subset::kPresent);
    // Before the first group the others are waiting for more nodes anyway, unless no further one will join.
    const bool waits_for_more = state.groups_started == 0 && state.no_more_nodes.empty();
    return (here == 0 && !any_is_set_aside(state)) || (!waits_for_more && here < state.shape->min_nodes);
}

/// Returns whether all nodes were lost, and enough of them for a group may come back.
bool group_may_come_back(const State& state) {
    const int here = state.nodes.count(Subset::kPresent);
    if ((here > 0 && !state.round.return_reported) || !no_replacement(state).empty()) return false;
    return here + std::ssize(may_come_back(state)) >= state.shape->min_nodes;
}

/// Returns whether nodes that were lost may come back, and reports that. Precondition: all nodes were lost.
bool waits_for_return(Transition& t) {
    State& state = t.state;
    const std::set<NodeName> names = may_come_back(state);
    if (names.empty()) return false;
    std::optional<TimePoint>& reported = state.round.return_reported;
    if (reported && state.now < *reported + kReportReturnEvery) return true;
    reported = state.now;
    HostList hosts{.first = {}, .total = names.size()};
    TimePoint until;
    for (const NodeName& name : names) {
        if (hosts.first.size() < kMaxHostsListed) hosts.first.push_back(name.host);
        until = std::max(until, state.nodes.at(name.id).heard_at + kHoldsOfSearch * state.config.hold);
    }
    t.say(fmt::format(
        "no node is connected, perhaps because the network has cut this host off; {} may come back within {}",
        some_of(hosts), seconds_text(std::chrono::ceil<std::chrono::seconds>(until - state.now))));
    return true;
}

/// Ends the job if there is nothing left to wait for; returns whether it did.
bool ended_for_lack_of_nodes(Transition& t) {
    const State& state = t.state;
    const int here = state.nodes.count(Subset::kPresent);
    if (departure_ends_job(state)) {
        finish(t, stopped_verdict(*state.departure, here, *state.shape));
    } else if (too_few_are_left(state)) {
        const std::string why = no_replacement(state);
        if (here == 0 && !any_is_set_aside(state)) {
            if (why.empty() && waits_for_return(t)) return false;
            std::string reason = "no node is left";
            if (!state.cause.reason.empty()) reason += fmt::format(": {}", state.cause.reason);
            finish(t, infrastructure_verdict(std::move(reason), kStartWhenReachable));
        } else if (!why.empty()) {
            finish(t, infrastructure_verdict(too_few_left_text(state, here, why),
                                             state.groups_started > 0 ? kLookAtLostNode : kLookAtAbsentNode));
        }
    }
    return state.phase == Phase::kFinished;
}

}  // namespace

bool departure_ends_job(const State& state) {
    return state.departure && too_few_are_left(state) && !group_may_come_back(state);
}

void gather(Transition& t) {
    State& state = t.state;
    if (state.phase != Phase::kGathering || !state.shape || ended_for_lack_of_nodes(t)) return;
    if (ends_instead_of_starting(state)) return finish(t, preempted_verdict(state));
    const int here = state.nodes.count(Subset::kEligible);
    if (here < state.shape->min_nodes) {
        state.round.last_call_ends.reset();
        if (state.now - state.round.since >= state.config.join_timeout) {
            finish(t, infrastructure_verdict(too_few(state, here)));
        }
        return;
    }
    if (!state.round.last_call_ends) state.round.last_call_ends = state.now + state.config.last_call;
    if (state.now < state.round.opens_at) return;
    const int max_nodes = max_size(state);
    const bool is_full = here >= max_nodes && count_rested(state) >= max_nodes;
    if (is_full || all_known_are_back(state) || state.now >= *state.round.last_call_ends)
        open_round(t, std::min(std::max(count_rested(state), state.shape->min_nodes), max_nodes));
}

void available(Transition& t) {
    gather(t);
    if (takes_last_place(t.state)) grow(t);  // else at a tick, when no further node has come for a while
}

void store_opened(Transition& t, const StoreOpened& event) {
    State& state = t.state;
    if (state.phase != Phase::kOpening || event.generation != state.generation) {
        t.say(fmt::format("the store of generation {} is not needed any more", number(event.generation)));
        t.actions.push_back(CloseStore{event.generation});
        return;
    }
    state.store_retry.reset();
    const std::vector<NodeId> chosen = choose_members(state);  // now: nodes may have joined or left meanwhile
    if (static_cast<int>(chosen.size()) < state.shape->min_nodes) {
        t.say(fmt::format("too few nodes are left for generation {}", number(event.generation)));
        t.actions.push_back(CloseStore{event.generation});
        state.phase = Phase::kGathering;
        return gather(t);
    }
    state.group = Group{state.generation, form_group(chosen, state, event.port), {}};
    state.group.started_at = state.now;
    state.phase = Phase::kRunning;
    if (++state.groups_started == 1) state.growth.first_size = static_cast<int>(chosen.size());
    state.cause = {};
    state.departure.reset();
    forget_hosts(state);
    state.nodes.change_all([](Node& node) { node.last_rank.reset(); });
    forget_idle_lost_nodes(state);
    for (const auto& [id, member] : state.group.members) {
        state.nodes.change(id, [&](Node& node) {
            node.last_rank = member.assignment.node_rank;
            node.busy = state.generation;
        });
        state.hosts[state.nodes.at(id).join.host].rank = member.assignment.node_rank;
        t.send(id, member.assignment);
    }
    const std::size_t nodes = state.group.members.size();
    const int workers = state.group.members.begin()->second.assignment.world_size;
    t.say(fmt::format("generation {} runs with {} and {}", number(state.generation), counted(nodes, "node"),
                      counted(workers, "worker")));
    give_notice(t);
}

void store_failed(Transition& t, const StoreFailed& event) {
    State& state = t.state;
    if (state.phase != Phase::kOpening || event.generation != state.generation) return;
    StoreRetry& retry = state.store_retry ? *state.store_retry : state.store_retry.emplace(state.now);
    retry.next = state.now + kStoreRetryAfter;
    if (state.now - retry.since < kStoreTriedFor)
        return t.say(fmt::format("cannot open a store for the workers, and will try again: {}", event.why));
    state.phase = Phase::kGathering;
    finish(t, infrastructure_verdict(fmt::format("the daemon could not open a store for the workers within {}: {}",
                                                 seconds_text(kStoreTriedFor), event.why),
                                     kMendDaemonHost));
}

void retry_store(Transition& t) {
    const State& state = t.state;
    if (state.phase != Phase::kOpening || !state.store_retry || state.now < state.store_retry->next) return;
    t.state.store_retry->next = TimePoint::max();
    t.actions.push_back(OpenStore{state.generation});
}

}  // namespace ddprun::coordinator
