#include "rendezvous/diagnosis/stall.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "rendezvous/diagnosis/hints.hpp"
#include "rendezvous/diagnosis/link.hpp"
#include "rendezvous/diagnosis/stall_text.hpp"
#include "rendezvous/diagnosis/wait_graph.hpp"

namespace ddprun::diagnosis {
namespace {

using std::chrono::nanoseconds;

/// Returns the weight of a finding, one per long wait, as evidence of the cause. The one with the largest is reported.
int weight(const StallFinding& finding) {
    switch (finding.kind) {
        case StallKind::kDead: return 7;
        case StallKind::kMismatch: return is_mismatch(*finding.group, *finding.wait) ? 6 : 2;
        case StallKind::kLagging: return 5;
        case StallKind::kUnknown: return 4;
        case StallKind::kAllPresent: return 3;
        case StallKind::kCircle: return 1;
        case StallKind::kLink:
        case StallKind::kNone: break;
    }
    return 0;
}

/// Returns whether the finding names a message without a receive. Among findings of one weight, such a one is reported.
bool has_unmatched_message(const StallFinding& finding) {
    const bool may = finding.kind == StallKind::kMismatch || finding.kind == StallKind::kCircle;
    return may && finding.wait->unmatched != nullptr;
}

/// The long waits of each rank, in any group.
using LongWaits = std::map<int, std::vector<const StallWait*>>;

LongWaits waits_by_rank(const std::vector<GroupWaits>& groups) {
    LongWaits waits;
    for (const GroupWaits& group : groups) {
        for (const StallWait& wait : group.long_waits()) {
            if (wait.operation->p2p_seq != 0) {
                waits[wait.rank].push_back(&wait);
                continue;
            }
            for (const int rank : group.participants(wait)) waits[rank].push_back(&wait);
        }
    }
    return waits;
}

/// Returns whether `rank` waits, but in no operation for `receiver`: it may send more to `receiver` when the ranks that
/// it waits for have arrived.
bool waits_elsewhere(int rank, int receiver, const LongWaits& waits) {
    const auto own = waits.find(rank);
    return own != waits.end() && std::ranges::none_of(own->second, [receiver](const StallWait* wait) {
               return wait->for_ranks.contains(receiver);
           });
}

/// Returns why `wait` does not end. `waiting`: ranks that wait themselves, in any group.
StallFinding classify(const GroupWaits& group, const StallWait& wait, const std::set<int>& waiting,
                      const LongWaits& waits, const RecordsByRank& all) {
    StallFinding finding{.kind = StallKind::kNone, .group = &group, .wait = &wait};
    const auto is = [&](StallKind kind, std::vector<int> ranks) {
        finding.kind = kind;
        finding.ranks = std::move(ranks);
        return finding;
    };
    std::vector<int> free;     // ranks that wait for no other rank
    std::vector<int> hidden;   // ranks that may wait in a group that their flight record has no slot for
    std::vector<int> unknown;  // ranks without a flight record
    for (const int rank : wait.for_ranks) {
        const auto record = all.find(rank);
        if (record != all.end() && record->second->ended) return is(StallKind::kDead, {rank});
        if (record == all.end() || !record->second->view.written)
            unknown.push_back(rank);
        else if (!waiting.contains(rank))
            (record->second->view.hidden_groups > 0 ? hidden : free).push_back(rank);
    }
    if (is_mismatch(group, wait)) return is(StallKind::kMismatch, group.participants(wait));
    if (!free.empty()) return is(StallKind::kLagging, std::move(free));
    if (auto stopped = group.stopped(wait); !stopped.empty()) return is(StallKind::kLagging, std::move(stopped));
    if (!hidden.empty()) return is(StallKind::kUnknown, std::move(hidden));
    if (!unknown.empty() || wait.unknown_ranks) return is(StallKind::kUnknown, std::move(unknown));
    if (wait.for_ranks.empty()) return is(StallKind::kAllPresent, group.participants(wait));
    // This check comes late: the sender may have more to send, and may wait for another rank before that.
    if (wait.unmatched != nullptr && !waits_elsewhere(wait.peer, wait.rank, waits))
        return is(StallKind::kMismatch, group.participants(wait));
    return is(StallKind::kCircle, {wait.for_ranks.begin(), wait.for_ranks.end()});
}

}  // namespace

StallVerdict diagnose(const std::vector<RankRecord>& records, nanoseconds min_wait) {
    if (StallVerdict link = diagnose_link(records); link.kind != StallKind::kNone) return link;
    RecordsByRank all;
    std::map<std::string, std::map<int, StallMember>> by_name;
    for (const RankRecord& record : records) {
        all[number(record.rank)] = &record;
        for (std::size_t i = 0; i < record.view.groups.size(); ++i) {
            const RecordedGroup& group = record.view.groups[i];
            if (group.live) by_name[group.name][number(record.rank)] = {&record, &group, static_cast<int>(i)};
        }
    }
    std::vector<GroupWaits> groups;
    groups.reserve(by_name.size());
    std::set<int> waiting;
    for (auto& [name, members] : by_name) {
        GroupWaits& group = groups.emplace_back(name, std::move(members));
        group.find_waits(min_wait);
        waiting.insert(group.waiting().begin(), group.waiting().end());
    }
    StallFinding best;
    const auto key = [](const StallFinding& finding) {
        return finding.wait == nullptr
                   ? std::tuple(0, false, nanoseconds(-1))
                   : std::tuple(weight(finding), has_unmatched_message(finding), finding.wait->waited);
    };
    const LongWaits waits = waits_by_rank(groups);
    for (const GroupWaits& group : groups) {
        for (const StallWait& wait : group.long_waits()) {
            StallFinding finding = classify(group, wait, waiting, waits, all);
            if (key(finding) > key(best)) best = std::move(finding);
        }
    }
    if (best.kind == StallKind::kNone) return {};
    const RecordedOperation& operation = *best.wait->operation;
    StallVerdict verdict;
    verdict.kind = best.kind;
    verdict.text = describe(best, all, Tense::kPresent);
    verdict.text_after = describe(best, all, Tense::kPast);
    verdict.hint = hint_for(best, all, Tense::kPresent);
    verdict.hint_after = hint_for(best, all, Tense::kPast);
    verdict.culprits = culprits(best);
    verdict.names_stopped = names_stopped_process(best, all);
    verdict.group = best.group->name();
    verdict.seq = operation.seq;
    verdict.ranks = best.ranks;
    verdict.p2p_seq = operation.p2p_seq;
    if (operation.p2p_seq != 0) verdict.waiter = best.wait->rank;
    return verdict;
}

}  // namespace ddprun::diagnosis
