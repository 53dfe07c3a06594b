#include "rendezvous/coordinator/stall.hpp"

#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "rendezvous/coordinator/stall_waits.hpp"
#include "rendezvous/coordinator/stall_words.hpp"

namespace ddprun::coordinator {
namespace {

using std::chrono::nanoseconds;

/// Which says most about the cause.
int weight(StallKind kind) {
    switch (kind) {
        case StallKind::kDead: return 6;
        case StallKind::kMismatch: return 5;
        case StallKind::kLagging: return 4;
        case StallKind::kUnknown: return 3;
        case StallKind::kAllPresent: return 2;
        case StallKind::kCircle: return 1;
        case StallKind::kNone: break;
    }
    return 0;
}

/// What keeps `wait`. `waiting`: ranks that wait themselves, in any group.
StallFinding classify(const GroupWaits& group, const StallWait& wait, const std::set<int>& waiting,
                      const BoardsByRank& all) {
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
        return std::tuple(weight(finding.kind), finding.wait != nullptr ? finding.wait->waited : nanoseconds(-1));
    };
    for (const GroupWaits& group : groups) {
        for (const StallWait& wait : group.speakers()) {
            StallFinding finding = classify(group, wait, waiting, all);
            if (key(finding) > key(best)) best = std::move(finding);
        }
    }
    if (best.kind == StallKind::kNone) return {};
    const BoardOperation& operation = *best.wait->operation;
    StallVerdict verdict{best.kind, describe(best, all), best.group->name(), operation.seq, best.ranks};
    verdict.p2p_seq = operation.p2p_seq;
    if (operation.p2p_seq != 0) verdict.waiter = best.wait->rank;
    return verdict;
}

}  // namespace ddprun::coordinator
