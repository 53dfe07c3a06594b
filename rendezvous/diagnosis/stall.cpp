#include "rendezvous/coordinator/stall.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "rendezvous/coordinator/stall_hints.hpp"
#include "rendezvous/coordinator/stall_waits.hpp"
#include "rendezvous/coordinator/stall_words.hpp"

namespace ddprun::coordinator {
namespace {

using std::chrono::nanoseconds;

/// Which says most about the cause.
int weight(const StallFinding& finding) {
    switch (finding.kind) {
        case StallKind::kDead: return 7;
        case StallKind::kMismatch: return is_mismatch(*finding.group, *finding.wait) ? 6 : 2;
        case StallKind::kLagging: return 5;
        case StallKind::kUnknown: return 4;
        case StallKind::kAllPresent: return 3;
        case StallKind::kCircle: return 1;
        case StallKind::kNone: break;
    }
    return 0;
}

/// Of several of one weight that one is told.
bool says_what_has_come(const StallFinding& finding) {
    const bool may = finding.kind == StallKind::kMismatch || finding.kind == StallKind::kCircle;
    return may && finding.wait->unasked != nullptr;
}

/// By rank: for whom it has waited long, in any group.
using LongWaits = std::map<int, std::vector<const StallWait*>>;

LongWaits long_waits(const std::vector<GroupWaits>& groups) {
    LongWaits waits;
    for (const GroupWaits& group : groups) {
        for (const StallWait& wait : group.speakers()) {
            if (wait.operation->p2p_seq != 0) {
                waits[wait.rank].push_back(&wait);
                continue;
            }
            for (const int rank : group.beside(wait)) waits[rank].push_back(&wait);
        }
    }
    return waits;
}

/// Whether that rank waits, and not for `receiver`: it may have more to send it when the others have come.
bool waits_elsewhere(int rank, int receiver, const LongWaits& waits) {
    const auto own = waits.find(rank);
    return own != waits.end() && std::ranges::none_of(own->second, [receiver](const StallWait* wait) {
               return wait->for_ranks.contains(receiver);
           });
}

/// What keeps `wait`. `waiting`: ranks that wait themselves, in any group.
StallFinding classify(const GroupWaits& group, const StallWait& wait, const std::set<int>& waiting,
                      const LongWaits& waits, const BoardsByRank& all) {
    StallFinding finding{.kind = StallKind::kNone, .group = &group, .wait = &wait};
    const auto is = [&](StallKind kind, std::vector<int> ranks) {
        finding.kind = kind;
        finding.ranks = std::move(ranks);
        return finding;
    };
    std::vector<int> free;     // they wait for nobody
    std::vector<int> hidden;   // they may wait in a group that their board has no place for
    std::vector<int> unknown;  // they have not shown a board
    for (const int rank : wait.for_ranks) {
        const auto board = all.find(rank);
        if (board != all.end() && board->second->ended) return is(StallKind::kDead, {rank});
        if (board == all.end() || !board->second->view.written)
            unknown.push_back(rank);
        else if (!waiting.contains(rank))
            (board->second->view.hidden_groups > 0 ? hidden : free).push_back(rank);
    }
    if (is_mismatch(group, wait)) return is(StallKind::kMismatch, group.beside(wait));
    if (!free.empty()) return is(StallKind::kLagging, std::move(free));
    if (auto stopped = group.stopped(wait); !stopped.empty()) return is(StallKind::kLagging, std::move(stopped));
    if (!hidden.empty()) return is(StallKind::kUnknown, std::move(hidden));
    if (!unknown.empty() || wait.somebody_unknown) return is(StallKind::kUnknown, std::move(unknown));
    if (wait.for_ranks.empty()) return is(StallKind::kAllPresent, group.beside(wait));
    // Its sender may have more to send, and wait for somebody else until then. So this is the last guess but one.
    if (wait.unasked != nullptr && !waits_elsewhere(wait.peer, wait.rank, waits))
        return is(StallKind::kMismatch, group.beside(wait));
    return is(StallKind::kCircle, {wait.for_ranks.begin(), wait.for_ranks.end()});
}

}  // namespace

StallVerdict judge(const std::vector<RankBoard>& boards, nanoseconds patience) {
    BoardsByRank all;
    std::map<std::string, std::map<int, StallMember>> by_name;
    for (const RankBoard& board : boards) {
        all[number(board.rank)] = &board;
        for (std::size_t i = 0; i < board.view.groups.size(); ++i) {
            const BoardGroup& group = board.view.groups[i];
            if (group.live) by_name[group.name][number(board.rank)] = {&board, &group, static_cast<int>(i)};
        }
    }
    std::vector<GroupWaits> groups;
    groups.reserve(by_name.size());
    std::set<int> waiting;
    for (auto& [name, members] : by_name) {
        GroupWaits& group = groups.emplace_back(name, std::move(members));
        group.look(patience);
        waiting.insert(group.waiting().begin(), group.waiting().end());
    }
    StallFinding best;
    const auto key = [](const StallFinding& finding) {
        return finding.wait == nullptr ? std::tuple(0, false, nanoseconds(-1))
                                       : std::tuple(weight(finding), says_what_has_come(finding), finding.wait->waited);
    };
    const LongWaits waits = long_waits(groups);
    for (const GroupWaits& group : groups) {
        for (const StallWait& wait : group.speakers()) {
            StallFinding finding = classify(group, wait, waiting, waits, all);
            if (key(finding) > key(best)) best = std::move(finding);
        }
    }
    if (best.kind == StallKind::kNone) return {};
    const BoardOperation& operation = *best.wait->operation;
    StallVerdict verdict;
    verdict.kind = best.kind;
    verdict.text = describe(best, all, Tense::kPresent);
    verdict.text_after = describe(best, all, Tense::kPast);
    verdict.hint = hint_for(best, all, Tense::kPresent);
    verdict.hint_after = hint_for(best, all, Tense::kPast);
    verdict.blamed = blamed(best);
    verdict.group = best.group->name();
    verdict.seq = operation.seq;
    verdict.ranks = best.ranks;
    verdict.p2p_seq = operation.p2p_seq;
    if (operation.p2p_seq != 0) verdict.waiter = best.wait->rank;
    return verdict;
}

}  // namespace ddprun::coordinator
