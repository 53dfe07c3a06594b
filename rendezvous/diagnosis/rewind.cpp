#include "rendezvous/coordinator/stall_rewind.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace ddprun::coordinator {
namespace {

using std::chrono::nanoseconds;

/// So long before the deadline nothing that came of it has happened, although not all boards are read at one moment.
constexpr nanoseconds kBefore = std::chrono::milliseconds(100);

/// So many operations that failed by a deadline are judged, each on a copy of all boards: of a thousand ranks 0.1 s,
/// for which the daemon hears nobody's heartbeats.
constexpr int kMaxJudged = 4;

using Since = std::optional<nanoseconds>;

void turn_back(Since& mark, nanoseconds by) {
    if (mark) mark = *mark > by ? Since(*mark - by) : std::nullopt;
}

void lower(std::uint64_t& number, std::uint64_t seq) {
    number = std::min(number, seq - std::min<std::uint64_t>(seq, 1));
}

/// False: it had not been called.
bool turn_back(BoardOperation& operation, BoardGroup* group, nanoseconds by) {
    const bool was_called = operation.queued_ago > by;
    operation.queued_ago -= std::min(by, operation.queued_ago);
    turn_back(operation.started_ago, by);
    turn_back(operation.waited_ago, by);
    turn_back(operation.ended_ago, by);
    if (!operation.ended_ago) operation.failed = operation.timed_out = operation.mismatch = false;
    if (group != nullptr && was_called && !operation.ended_ago)
        group->live = true;  // it may have gone with the process
    if (group != nullptr && operation.p2p_seq == 0) {
        if (!was_called) lower(group->queued, operation.seq);
        if (!operation.started_ago) lower(group->started, operation.seq);
        if (!operation.ended_ago) lower(group->done, operation.seq);
    }
    return was_called;
}

void turn_back(BoardView& view, nanoseconds by) {
    std::vector<BoardOperation> called;
    for (BoardOperation& operation : view.operations) {
        const auto index = static_cast<std::size_t>(operation.group);
        BoardGroup* const group = operation.group >= 0 && index < view.groups.size() ? &view.groups[index] : nullptr;
        if (turn_back(operation, group, by)) called.push_back(std::move(operation));
    }
    view.operations = std::move(called);
    pass_waits_on(view);
    for (BoardGroup& group : view.groups) {
        turn_back(group.aborted_ago, by);
        if (!group.aborted_ago) group.abort_reason.clear();
    }
    if (view.phase_for > by)
        view.phase_for -= by;
    else
        view.phase.clear();  // it was another one
}

/// Index of its newest group of that name; -1: it has none.
int newest_group(const BoardView& view, const std::string& name) {
    const auto found = std::ranges::find(view.groups.rbegin(), view.groups.rend(), name, &BoardGroup::name);
    return static_cast<int>(view.groups.rend() - found) - 1;
}

/// Whether members had failed in that collective before `own` called it: then it failed of that, and they are no
/// culprits, wherever they are by now.
bool had_failed(const std::vector<RankBoard>& boards, const BoardView& own, const BoardOperation& operation) {
    const auto index = static_cast<std::size_t>(operation.group);
    if (operation.p2p_seq != 0 || operation.group < 0 || index >= own.groups.size()) return false;
    return std::ranges::any_of(boards, [&](const RankBoard& board) {
        const int group = newest_group(board.view, own.groups[index].name);
        return std::ranges::any_of(board.view.operations, [&](const BoardOperation& theirs) {
            return group >= 0 && theirs.group == group && theirs.p2p_seq == 0 && theirs.seq == operation.seq &&
                   theirs.failed && theirs.ended_ago && *theirs.ended_ago > operation.queued_ago;
        });
    });
}

struct Timeout {
    std::size_t board = 0;      ///< its place in the list
    std::size_t operation = 0;  ///< the same, on that board
    nanoseconds ended_ago{0};
    nanoseconds lasted{0};
};

/// In the order in which they passed.
std::vector<Timeout> timeouts(const std::vector<RankBoard>& boards) {
    std::vector<Timeout> found;
    for (std::size_t board = 0; board < boards.size(); ++board) {
        const std::vector<BoardOperation>& operations = boards[board].view.operations;
        for (std::size_t i = 0; i < operations.size(); ++i) {
            const BoardOperation& operation = operations[i];
            if (!operation.timed_out || !operation.ended_ago) continue;
            const nanoseconds began = operation.started_ago.value_or(operation.queued_ago);
            if (began > *operation.ended_ago)
                found.push_back({board, i, *operation.ended_ago, began - *operation.ended_ago});
        }
    }
    std::ranges::stable_sort(found, std::greater(), &Timeout::ended_ago);
    return found;
}

/// Group, number, and of a send or receive whose: each rank counts its own.
using Subject = std::tuple<std::string_view, std::uint64_t, std::uint64_t, int>;

Subject subject(const RankBoard& board, const BoardOperation& operation) {
    const auto index = static_cast<std::size_t>(operation.group);
    const bool known = operation.group >= 0 && index < board.view.groups.size();
    const std::string_view group = known ? std::string_view(board.view.groups[index].name) : std::string_view();
    return {group, operation.seq, operation.p2p_seq, operation.p2p_seq != 0 ? number(board.rank) : -1};
}

/// Groups that have failed, and how long ago each did.
class Failures {
public:
    /// Whether that ended because its group had failed, with all that was in hand there. Asked in the order in which
    /// they ended.
    bool explain(std::string_view group, const BoardOperation& operation) {
        const nanoseconds ended_ago = *operation.ended_ago;
        const auto [known, is_first] = failed_ago_.try_emplace(group, ended_ago);
        if (is_first) return false;
        if (operation.queued_ago > known->second && known->second - ended_ago <= kTogether) return true;
        known->second = ended_ago;
        return false;
    }

private:
    std::map<std::string_view, nanoseconds> failed_ago_;
};

StallVerdict judge_one(std::vector<RankBoard> boards, const Timeout& timeout) {
    // Whether somebody waited or not: that it failed is enough to ask why.
    BoardOperation& operation = boards[timeout.board].view.operations[timeout.operation];
    operation.waited_ago = timeout.ended_ago + timeout.lasted;
    operation.polled = false;
    const nanoseconds before = std::min(kBefore, timeout.lasted / 4);
    return judge(rewind(std::move(boards), timeout.ended_ago + before), timeout.lasted / 2);
}

}  // namespace

std::vector<RankBoard> rewind(std::vector<RankBoard> boards, nanoseconds by) {
    for (RankBoard& board : boards) {
        turn_back(board.ended_ago, by);
        if (board.ended && !board.ended_ago) {
            board.ended = false;
            board.process = "running";
        }
        const bool told_since = board.process_before_ago.value_or(nanoseconds(0)) <= by;
        if (!board.ended && !board.process_before.empty() && told_since) board.process = board.process_before;
        turn_back(board.view, by);
    }
    return boards;
}

/// The first one that is news: what failed later failed of that.
StallVerdict judge_timeout(const std::vector<RankBoard>& boards, nanoseconds recent, const IsNews& is_news) {
    Failures failures;
    std::set<Subject> judged;  // a late peer's deadline of the same operation is no other one
    for (const Timeout& timeout : timeouts(boards)) {
        const RankBoard& board = boards[timeout.board];
        const BoardOperation& operation = board.view.operations[timeout.operation];
        const Subject about = subject(board, operation);
        const bool explained = failures.explain(std::get<0>(about), operation);
        if (explained || timeout.ended_ago > std::min<nanoseconds>(recent, kRecentTimeout)) continue;
        if (judged.size() == kMaxJudged) break;
        if (!judged.insert(about).second || had_failed(boards, board.view, operation)) continue;
        StallVerdict verdict = judge_one(boards, timeout);
        if (verdict.kind != StallKind::kNone && (!is_news || is_news(verdict))) return verdict;
    }
    return {};
}

}  // namespace ddprun::coordinator
