#include "rendezvous/coordinator/hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "common/job_limits.hpp"
#include "common/text/number.hpp"
#include "common/text/words.hpp"
#include "rendezvous/coordinator/gathering.hpp"
#include "rendezvous/coordinator/nodes.hpp"
#include "rendezvous/coordinator/preemption.hpp"
#include "rendezvous/coordinator/running.hpp"
#include "rendezvous/coordinator/waiting.hpp"

namespace ddprun::coordinator {
namespace {

constexpr std::chrono::seconds kFirstCoolDown{10};
constexpr std::chrono::seconds kMaxCoolDown{300};
constexpr std::chrono::hours kStrikesForgotten{1};

/// Returns the cool-down after a number of strikes. None follows the first, which may be an accident.
Duration cool_down(int strikes) {
    if (strikes < 2) return {};
    const int doublings = std::min(strikes - 2, 10);
    return std::min(kMaxCoolDown, kFirstCoolDown * (1 << doublings));
}

bool is_node_of(const Node& node, const std::string& host) {
    return node.link != Link::kLost && node.join.host == host;
}

/// Lets the nodes of `host` take no part, also those that come later, until take_back().
void set_aside(State& state, const std::string& host, std::string why) {
    state.hosts[host].set_aside = std::move(why);
    state.nodes.change_all([&](Node& node) {
        if (node.join.host == host) node.set_aside = true;
    });
}

/// Lets the nodes of `host` take part again, and forgets what counts against it. Its cut links count against the hosts
/// at their other ends no more, or one of these would be left out instead if the link is still cut.
void take_back(State& state, const std::string& host) {
    Host& known = state.hosts.at(host);
    known.set_aside.clear();
    known.strikes = 0;
    known.cut_from.clear();
    known.cut_off_until = {};
    known.early_losses = 0;
    for (auto& [name, other] : state.hosts) other.cut_from.erase(host);
    state.nodes.change_all([&](Node& node) {
        if (node.join.host != host) return;
        node.set_aside = false;
        node.idle_since = state.now;  // it comes now, for a job that may grow
    });
}

/// Returns how many nodes are certain to be here without those of `host`: one that was silent for two heartbeats may be
/// about to be lost.
int count_alive_others(const State& state, const std::string& host) {
    const auto recent = state.now - 2 * state.config.heartbeat_interval;
    return static_cast<int>(std::ranges::count_if(state.nodes.of(Subset::kPresent), [&](const NodeName& name) {
        const Node& node = state.nodes.at(name.id);
        return name.host != host && node.link == Link::kConnected && node.heard_at >= recent;
    }));
}

/// Returns how many nodes the job has without those of `host`.
int count_others(const State& state, const std::string& host) {
    return static_cast<int>(std::ranges::count_if(
        state.nodes, [&](const auto& entry) { return present(entry.second) && !is_node_of(entry.second, host); }));
}

const Node* node_of(const State& state, const std::string& host) {
    const auto found =
        std::ranges::find_if(state.nodes, [&](const auto& entry) { return is_node_of(entry.second, host); });
    return found == state.nodes.end() ? nullptr : &found->second;
}

/// Returns why there can be no order about this host: the job is over, or has no such node.
Result<void> check_host(const State& state, const std::string& host) {
    if (state.phase == Phase::kFinished) return Error{Errc::kRefused, "the job is over: " + state.verdict->reason};
    if (state.hosts.contains(host) || node_of(state, host) != nullptr) return {};
    const HostList hosts = hosts_of(state, Subset::kJoined);
    return Error{Errc::kNotFound, fmt::format("this job has no node '{}'. {}", host,
                                              hosts.total > 0 ? "Its nodes: " + some_of(hosts)
                                                              : std::string("No node has joined it yet"))};
}

/// Returns whether the network has cut off several nodes of the group, and half of it or more.
bool is_outage(const Group& group) {
    const auto cut_off =
        static_cast<std::size_t>(std::ranges::count_if(group.lost, [](const auto& entry) { return entry.second; }));
    return cut_off > 1 && 2 * cut_off >= group.members.size();
}

/// Returns what counts against a host: its cut links, then its strikes, without those that are forgotten.
std::pair<int, int> evidence_against(const State& state, const std::string& name) {
    const auto found = state.hosts.find(name);
    if (found == state.hosts.end()) return {0, 0};
    const Host& host = found->second;
    const auto links = std::ranges::count_if(
        host.cut_from, [&](const auto& other) { return state.now - other.second <= kStrikesForgotten; });
    return {static_cast<int>(links), state.now - host.struck_at > kStrikesForgotten ? 0 : host.strikes};
}

/// Returns the end that strike_end_of() counts links against.
std::string end_of(const State& state, const std::vector<diagnosis::CutLink>& links) {
    std::map<std::string, int> ends;  // how many links each has
    for (const diagnosis::CutLink& link : links) {
        ++ends[link.first];
        ++ends[link.second];
    }
    const auto key = [&](const auto& entry) {
        const Node* const node = node_of(state, entry.first);
        return std::tuple(entry.second, evidence_against(state, entry.first), node == nullptr || !node->beside_daemon,
                          entry.first);
    };
    return std::ranges::max_element(ends, {}, key)->first;
}

}  // namespace

void strike(State& state, const std::string& name) {
    Host& host = state.hosts[name];
    if (state.now - host.struck_at > kStrikesForgotten) host.strikes = 0;
    ++host.strikes;
    host.struck_at = state.now;
}

TimePoint cool_down_end(const State& state, const Node& node) {
    const auto host = state.hosts.find(node.join.host);
    if (host == state.hosts.end()) return TimePoint::min();
    return std::max(host->second.cut_off_until, host->second.struck_at + cool_down(host->second.strikes));
}

bool is_cooling_down(const State& state, const Node& node) { return state.now < cool_down_end(state, node); }

std::string count_losses(Transition& t, Duration lasted) {
    State& state = t.state;
    std::string needed;
    const bool outage = is_outage(state.group);
    if (outage) t.say("many nodes were cut off at once, which counts against none of them");
    const auto counts = [&](const std::string& name) {
        const auto lost = state.group.lost.find(name);
        return !outage || lost == state.group.lost.end() || !lost->second;
    };
    for (const auto& [name, by_network] : state.group.lost)
        if (counts(name)) strike(state, name);
    state.early_outages = outage && lasted < kProgress ? state.early_outages + 1 : 0;
    if (lasted >= kProgress) {  // with these hosts, while one that was left out has not shown that it is better now
        for (const auto& [id, member] : state.group.members) {
            const auto node = state.nodes.find(id);
            if (node != state.nodes.end()) state.hosts[node->second.join.host].early_losses = 0;
        }
        return needed;
    }
    for (const std::string& name : state.cause.lost) {
        if (!counts(name) || ++state.hosts[name].early_losses < kMaxEarlyLosses) continue;
        if (count_others(state, name) < state.shape->min_nodes) {
            needed = name;
        } else {
            set_aside(
                state, name,
                fmt::format("it was lost {} times within {} of a start", kMaxEarlyLosses, seconds_text(kProgress)));
            t.say(fmt::format("{} is set aside: {}", name_node(name), state.hosts[name].set_aside));
        }
    }
    return needed;
}

void strike_end_of(State& state, const std::vector<diagnosis::CutLink>& links) {
    const std::string name = end_of(state, links);
    for (const diagnosis::CutLink& link : links) {
        state.hosts[link.first].cut_from[link.second] = state.now;
        state.hosts[link.second].cut_from[link.first] = state.now;
    }
    strike(state, name);
    if (count_others(state, name) >= state.shape->min_nodes)
        state.hosts[name].cut_off_until = state.now + kStrikesForgotten;
}

std::string why_set_aside(const State& state, const std::string& name) {
    const auto host = state.hosts.find(name);
    return host == state.hosts.end() ? "" : host->second.set_aside;
}

std::string hint_at_set_aside(const State& state) {
    const HostList hosts = hosts_of(state, Subset::kSetAside);
    if (hosts.total == 0) return "";
    return fmt::format("; {} {} {} set aside: `ddpctl undrain {}` lets it take part",
                       inflect(hosts.total, "node", "nodes"), some_of(hosts), inflect(hosts.total, "is", "are"),
                       hosts.first.front());
}

void forget_hosts(State& state) {
    if (state.hosts.size() <= 2 * static_cast<std::size_t>(kMaxNodes)) return;
    std::set<std::string_view> here;
    for (const auto& [id, node] : state.nodes) here.insert(node.join.host);
    std::erase_if(state.hosts, [&](const auto& entry) {
        return entry.second.strikes == 0 && entry.second.cut_from.empty() && entry.second.set_aside.empty() &&
               !here.contains(entry.first);
    });
}

Result<std::string> drain(Transition& t, const std::string& host) {
    State& state = t.state;
    if (const Result<void> known = check_host(state, host); !known) return known.error();
    const std::string hint = fmt::format("`ddpctl undrain {}` lets it take part again", host);
    if (const std::string why = why_set_aside(state, host); !why.empty())
        return fmt::format("{} is set aside already: {}. {}", name_node(host), why, hint);
    const Node* node = node_of(state, host);
    const bool is_member = node != nullptr && node->busy == state.group.generation;
    const int others = count_alive_others(state, host);
    if (node != nullptr && present(*node) && others < state.shape->min_nodes) {
        const bool is_full = state.nodes.count(Subset::kPresent) >= state.shape->max_nodes;
        return Error{Errc::kRefused,
                     fmt::format("the job cannot do without {}: it needs {}, and {} here. Start another one "
                                 "first{}{}",
                                 name_node(host), counted(static_cast<std::size_t>(state.shape->min_nodes), "node"),
                                 others == 0   ? "no other is"
                                 : others == 1 ? "1 other is"
                                               : fmt::format("{} others are", others),
                                 is_full ? ", with --spare" : "", hint_at_set_aside(state))};
    }
    if (is_member && holds_growth(state))
        return Error{Errc::kRefused, "the job has notice of a preemption: its workers may be saving"};
    if (is_member && state.phase == Phase::kRunning && state.group.is_ending)
        return Error{Errc::kRefused, "workers have finished already: the job is about to end"};
    set_aside(state, host, "an operator has drained it");
    t.say(fmt::format("{} is drained", name_node(host)));
    if (state.phase == Phase::kRunning && is_member)
        stop_group(t, because(fmt::format("{} was drained by ddpctl", name_node(host))));
    else if (state.phase == Phase::kGathering)
        gather(t);
    const std::string effect = is_member ? fmt::format("its workers are being stopped, for which they have up to {}",
                                                       seconds_text(node->join.stop_grace))
                                         : "it gets no workers";
    const std::string text = fmt::format("{} is drained: {}. {}", name_node(host), effect, hint);
    if (node == nullptr || !node->beside_daemon) return text;
    return text + ". The job's ddprund runs on this host: the job ends if it is stopped there, or the host is";
}

Result<std::string> undrain(Transition& t, const std::string& host) {
    State& state = t.state;
    if (const Result<void> known = check_host(state, host); !known) return known.error();
    const auto found = state.hosts.find(host);
    const bool is_cut_off = found != state.hosts.end() && state.now < found->second.cut_off_until;
    if (why_set_aside(state, host).empty() && !is_cut_off)
        return Error{Errc::kRefused, fmt::format("{} is not drained: it takes part already", name_node(host))};
    take_back(state, host);
    t.say(fmt::format("{} may take part again", name_node(host)));
    const bool here = node_of(state, host) != nullptr;
    available(t);
    return fmt::format("{} may take part again{}", name_node(host), here ? "" : " when it joins");
}

}  // namespace ddprun::coordinator
