#include "rendezvous/coordinator/stall_rewind.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace ddprun::coordinator {
namespace {

using std::chrono::nanoseconds;

/// So long before the deadline nothing that came of it has happened, although not all boards are read at one moment.
constexpr nanoseconds kBefore = std::chrono::milliseconds(100);

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
    if (!operation.ended_ago) operation.failed = operation.timed_out = false;
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
    if (view.phase_for > by)
        view.phase_for -= by;
    else
        view.phase.clear();  // it was another one
}

struct Timeout {
    BoardOperation* operation = nullptr;
    nanoseconds ended_ago{0};
    nanoseconds lasted{0};
};

/// The first one: what failed later failed of that.
Timeout first_timeout(std::vector<RankBoard>& boards, nanoseconds recent) {
    Timeout first;
    for (RankBoard& board : boards) {
        for (BoardOperation& operation : board.view.operations) {
            if (!operation.timed_out || !operation.ended_ago || *operation.ended_ago > recent) continue;
            if (first.operation != nullptr && *operation.ended_ago <= first.ended_ago) continue;
            const nanoseconds began = operation.started_ago.value_or(operation.queued_ago);
            first = {&operation, *operation.ended_ago, began - *operation.ended_ago};
        }
    }
    return first;
}

}  // namespace

std::vector<RankBoard> rewind(std::vector<RankBoard> boards, nanoseconds by) {
    for (RankBoard& board : boards) {
        turn_back(board.ended_ago, by);
        if (board.ended && !board.ended_ago) {
            board.ended = false;
            board.process = "running";
        }
        turn_back(board.view, by);
    }
    return boards;
}

StallVerdict judge_timeout(std::vector<RankBoard> boards, nanoseconds recent) {
    const Timeout timeout = first_timeout(boards, std::min<nanoseconds>(recent, kRecentTimeout));
    if (timeout.operation == nullptr || timeout.lasted <= nanoseconds(0)) return {};
    // Whether somebody waited or not: that it failed is enough to ask why.
    BoardOperation& operation = *timeout.operation;
    operation.waited_ago = timeout.ended_ago + timeout.lasted;
    operation.polled = false;
    const nanoseconds before = std::min(kBefore, timeout.lasted / 4);
    return judge(rewind(std::move(boards), timeout.ended_ago + before), timeout.lasted / 2);
}

}  // namespace ddprun::coordinator
