#include "rendezvous/diagnosis/link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "common/text/words.hpp"
#include "rendezvous/diagnosis/cause.hpp"
#include "rendezvous/diagnosis/rewind.hpp"
#include "rendezvous/diagnosis/stall_text.hpp"

namespace ddprun::diagnosis {
namespace {

using std::chrono::nanoseconds;

/// A rank that gets no answer from the host of another one.
struct Silence {
    const RankRecord* from = nullptr;
    const RankRecord* to = nullptr;
    const RecordedOperation* operation = nullptr;
    nanoseconds waited{0};
};

/// Returns whether the worker runs and its agent has answered, so that its node reaches the daemon. A stopped worker
/// shows no cut link: its own record stays as it was, and if its queue of new connections is full, its host drops
/// requests.
bool shows_links(const RankRecord& record) {
    return !record.ended && record.process && record.process != ProcessState::kStopped;
}

nanoseconds waited(const RecordedOperation& operation) { return operation.waited_ago.value_or(operation.queued_ago); }

CutLink link_between(const RankRecord& one, const RankRecord& other) {
    const auto [first, second] = std::minmax(one.host, other.host);
    return {first, second};
}

/// Returns the silences, the longest first. `among`: as for diagnose_link().
std::vector<Silence> silences_in(const std::vector<RankRecord>& records, const RecordsByRank& all,
                                 const std::vector<CutLink>* among) {
    std::vector<Silence> found;
    for (const RankRecord& record : records) {
        if (!shows_links(record)) continue;
        for (const RecordedOperation& operation : record.view.operations) {
            if (operation.unreachable < 0 || operation.ended_ago) continue;
            const auto peer = all.find(operation.unreachable);
            if (peer == all.end() || !shows_links(*peer->second) || peer->second->host == record.host) continue;
            const CutLink link = link_between(record, *peer->second);
            if (among != nullptr && std::ranges::find(*among, link) == among->end()) continue;
            found.push_back({&record, peer->second, &operation, waited(operation)});
        }
    }
    std::ranges::stable_sort(found, std::ranges::greater{}, &Silence::waited);
    return found;
}

std::vector<CutLink> links_of(const std::vector<Silence>& silences) {
    std::vector<CutLink> links;
    for (const Silence& silence : silences) {
        const CutLink link = link_between(*silence.from, *silence.to);
        if (std::ranges::find(links, link) == links.end()) links.push_back(link);
    }
    return links;
}

/// Returns the node that all links have in common; nothing if there is none, or only one link.
std::optional<std::string> common_node(const std::vector<CutLink>& links) {
    if (links.size() < 2) return std::nullopt;
    for (const std::string& host : {links.front().first, links.front().second}) {
        if (std::ranges::all_of(links, [&](const CutLink& link) { return link.first == host || link.second == host; }))
            return host;
    }
    return std::nullopt;
}

/// Returns "node n1 and node n2 cannot reach each other".
std::string name_links(const std::vector<CutLink>& links, std::string_view can_not) {
    if (const auto common = common_node(links)) {
        std::vector<std::string> others;
        for (const CutLink& link : links) others.push_back(link.first == *common ? link.second : link.first);
        return fmt::format("{} and the nodes {} {} reach each other", name_node(*common), list_of(std::move(others)),
                           can_not);
    }
    const std::string pair = fmt::format("{} and {}", name_node(links.front().first), name_node(links.front().second));
    if (links.size() == 1) return fmt::format("{} {} reach each other", pair, can_not);
    return fmt::format("{} pairs of nodes {} reach each other, one of them {}", links.size(), can_not, pair);
}

std::string describe(const Silence& silence, const std::vector<CutLink>& links, const RecordsByRank& all, Tense tense) {
    const bool was = tense == Tense::kPast;
    const std::string operation = protocol::describe(silence.from->view, *silence.operation);
    const std::string where = silence.operation->failed ? fmt::format("it failed in {}", operation)
                                                        : fmt::format("it {} in {} for {}", was ? "waited" : "waits",
                                                                      operation, duration_text(silence.waited));
    return fmt::format("LINK {}: {} {} no answer from the host of {}, although both nodes {} the daemon; {}",
                       name_links(links, was ? "could not" : "cannot"), name_ranks({number(silence.from->rank)}, all),
                       was ? "got" : "gets", name_ranks({number(silence.to->rank)}, all), was ? "reached" : "reach",
                       where);
}

constexpr const char* kHint =
    "Workers connect to each other directly: check the network between these nodes (cable, switch, route), that no "
    "firewall drops connections from one to the other, to any port, and that the workers use the right address "
    "(--local-addr, DDPRUN_SOCKET_IFNAME)";

/// Returns whether an operation failed because of another rank, or by its deadline.
bool failed_because_of_others(const RecordedOperation& operation) {
    return operation.failed && operation.ended_ago && *operation.ended_ago < kRecentTimeout &&
           (operation.peer_failed || operation.timed_out || operation.unreachable >= 0);
}

/// Returns the record rewound, but with the operations that have failed since because a host did not answer. A link
/// that is cut while no operation runs is in no other one.
RankRecord rewind_but_silences(const RankRecord& record, nanoseconds by) {
    RankRecord before = rewind({record}, by).front();
    for (RecordedOperation operation : record.view.operations) {
        if (operation.unreachable < 0 || operation.queued_ago > by || !failed_because_of_others(operation)) continue;
        operation.ended_ago.reset();
        before.view.operations.push_back(std::move(operation));
    }
    return before;
}

/// The records are rewound to this long before the failure.
constexpr nanoseconds kBeforeFailure = std::chrono::milliseconds(100);

}  // namespace

StallVerdict diagnose_link(const std::vector<RankRecord>& records, const std::vector<CutLink>* among) {
    RecordsByRank all;
    for (const RankRecord& record : records) all[number(record.rank)] = &record;
    const std::vector<Silence> silences = silences_in(records, all, among);
    if (silences.empty()) return {};
    const Silence& longest = silences.front();
    StallVerdict verdict;
    verdict.kind = StallKind::kLink;
    verdict.links = links_of(silences);
    verdict.text = describe(longest, verdict.links, all, Tense::kPresent);
    verdict.text_after = describe(longest, verdict.links, all, Tense::kPast);
    verdict.hint = fmt::format("{}. If they reach each other again within {} of the cut, the job goes on", kHint,
                               seconds_text(kLinkTolerated));
    verdict.hint_after = kHint;
    // The same links are the same verdict, whichever ranks and group it names.
    for (const CutLink& link : verdict.links) verdict.group += fmt::format("{} {}\n", link.first, link.second);
    verdict.seq = longest.operation->seq;
    verdict.p2p_seq = longest.operation->p2p_seq;
    if (verdict.p2p_seq != 0) verdict.waiter = number(longest.from->rank);
    return verdict;
}

bool share_a_node(const std::vector<CutLink>& some, const std::vector<CutLink>& others) {
    std::vector<CutLink> all = some;
    all.insert(all.end(), others.begin(), others.end());
    return !some.empty() && !others.empty() && common_node(all);
}

bool shows_unreachable(const std::vector<RankRecord>& records) {
    return std::ranges::any_of(records, [](const RankRecord& record) {
        return std::ranges::any_of(record.view.operations, [](const RecordedOperation& operation) {
            return operation.unreachable >= 0 && !operation.ended_ago;
        });
    });
}

StallVerdict diagnose_link_before(const std::vector<RankRecord>& records, const FailureReport& failed) {
    if (is_violent(failed.status)) return {};
    bool depends = lost_a_peer(failed);
    std::optional<nanoseconds> first;  // the oldest such failure of any rank
    for (const RankRecord& record : records) {
        for (const RecordedOperation& operation : record.view.operations) {
            if (!failed_because_of_others(operation)) continue;
            first = std::max(first.value_or(nanoseconds(0)), *operation.ended_ago);
            depends = depends || record.rank == failed.rank;
        }
    }
    if (!first || !depends) return {};
    std::vector<RankRecord> before;
    for (const RankRecord& record : records) before.push_back(rewind_but_silences(record, *first + kBeforeFailure));
    return diagnose_link(before);
}

}  // namespace ddprun::diagnosis
