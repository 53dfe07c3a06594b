#pragma once
// Control messages of any content, for tests of what is written and read.

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "rendezvous/coordinator/messages_json.hpp"

namespace ddprun::coordinator {

/// Messages of any content that a receiver accepts, by seed.
class Generator {
public:
    explicit Generator(std::uint32_t seed) : random_(seed) {}

    AgentMessage agent_message() {
        switch (number(0, 9)) {
            case 0: return join();
            case 1: return Heartbeat{};
            case 2: return WorkerFailed{generation(), failure()};
            case 3: return GroupStopped{generation()};
            case 4: return GroupSucceeded{generation()};
            case 5: return WorkerFinished{generation(), Rank{any()}};
            case 6:
                return Stalled{generation(),     rank(),    text(),
                               natural(),        natural(), std::chrono::milliseconds(number(0, 1 << 30)),
                               number(0, 1) == 1};
            case 7: return shown_board();
            case 8: return Inspect{kProtocolVersion, maybe_rank(), number(0, kMaxOperationsShown)};
            default: return Leave{number(1, 64)};
        }
    }

    DaemonMessage daemon_message() {
        switch (number(0, 10)) {
            case 0:
                return Welcome{text(),
                               std::chrono::milliseconds(number(1, 1 << 30)),
                               std::chrono::milliseconds(number(1, 1 << 30)),
                               text(),
                               text(),
                               number(0, 1) == 1};
            case 1: return Heartbeat{};
            case 2: return Waiting{texts(), any(), any(), std::chrono::milliseconds(number(0, 1 << 30)), text()};
            case 3:
                return Assignment{generation(),      NodeRank{any()}, number(1, 9), any(),  number(1, 9), text(),
                                  number(0, 65'535), any(),           any(),        text(), number(0, 9)};
            case 4: return Abort{generation(), text()};
            case 5: return Finished{verdict()};
            case 6: return ShowBoards{generation(), natural(), maybe_rank(), number(0, kMaxOperationsShown)};
            case 7: return Notice{generation(), text()};
            case 8: return shown_board();
            case 9: return Inspected{text(), generation(), any(), texts(), text()};
            default: return Rejected{text(), number(0, 1) == 1};
        }
    }

private:
    int number(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
    int any() { return number(0, 1) ? number(0, 9) : number(0, std::numeric_limits<int>::max()); }
    Generation generation() { return Generation{number(0, 1) ? number(0, 9) : (std::int64_t{1} << 53) - number(0, 9)}; }

    std::string text() {
        static const std::vector<std::string> kPieces{
            "a", "B",    "\"", "\\",           "/", "\n", "\r",  "\t", "\x1b[31m", std::string(1, '\0'), "\x7f",
            "é", "节点", "🔥",  "\xEF\xBF\xBD", " ", "{}", "null"};
        std::string result;
        for (int left = number(0, 12); left > 0; --left)
            result += kPieces[static_cast<std::size_t>(number(0, static_cast<int>(kPieces.size()) - 1))];
        return result;
    }
    std::vector<std::string> texts() {
        std::vector<std::string> result(static_cast<std::size_t>(number(0, 4)));
        for (std::string& item : result) item = text();
        return result;
    }
    Join join() {
        Join join;
        join.node = text();
        join.host = text();
        join.pid = any();
        join.slots = any();
        join.min_nodes = any();
        join.max_nodes = any();
        join.max_restarts = any();
        if (number(0, 1)) join.run_id = text();
        if (number(0, 1)) join.node_rank = any();
        if (number(0, 1)) join.session = text();
        join.boards = number(0, 1) == 1;
        return join;
    }
    Rank rank() { return Rank{number(0, 1 << 27)}; }
    std::optional<Rank> maybe_rank() { return number(0, 1) ? std::optional(rank()) : std::nullopt; }
    std::uint64_t natural() { return static_cast<std::uint64_t>(any()); }
    std::chrono::nanoseconds duration() { return std::chrono::nanoseconds(any()); }
    ShownBoard shown_board() {
        ShownBoard shown{generation(), natural(), number(0, 1) == 1, {}};
        RankBoard& board = shown.board;
        board.rank = rank();
        board.host = text();
        board.pid = any();
        board.process = text();
        board.ended = number(0, 1) == 1;
        if (board.ended) board.ended_ago = duration();
        if (number(0, 1)) board.process_before = text();
        if (number(0, 1)) board.process_before_ago = duration();
        if (number(0, 1)) board.stopped_for = duration();
        board.wall_clock_ns = any();
        board.view.written = number(0, 1) == 1;
        board.view.phase = text();
        board.view.phase_for = duration();
        board.view.operations_in_all = natural();
        board.view.hidden_groups = number(0, 1);
        for (int left = number(0, 3); left > 0; --left) {
            board.view.groups.push_back({text(),
                                         number(0, 9),
                                         number(1, 9),
                                         {{number(0, 9), number(1, 9), number(0, 9)}},
                                         number(0, 1) == 1,
                                         natural(),
                                         natural(),
                                         natural()});
            if (number(0, 1)) {
                board.view.groups.back().left_ago = duration();
                board.view.groups.back().left_by_exception = number(0, 1) == 1;
            }
            if (number(0, 1) == 0) continue;
            board.view.groups.back().aborted_ago = duration();
            board.view.groups.back().abort_reason = text();
        }
        for (int left = number(0, 3); left > 0; --left)
            board.view.operations.push_back(operation(board.view.groups.size()));
        return shown;
    }
    BoardOperation operation(std::size_t groups) {
        BoardOperation operation{natural(), number(-1, static_cast<int>(groups) - 1), natural(), natural()};
        operation.op = text();
        operation.reduce = text();
        if (number(0, 1)) {
            operation.dtype = "f32";
            operation.count = natural();
            operation.input_count = natural();
            operation.output_count = natural();
        }
        operation.tag = text();
        operation.peer = number(-1, 9);
        operation.transfer_tag = number(-9, 9);
        operation.fingerprint = number(0, 1) ? 0 : (std::uint64_t{1} << 63) + natural();
        operation.queued_ago = duration();
        operation.timeout = std::chrono::milliseconds(number(0, 1) ? 0 : number(1, 1 << 30));
        if (number(0, 1)) operation.started_ago = duration();
        if (number(0, 1)) operation.ended_ago = duration();
        operation.failed = number(0, 1) == 1;
        operation.timed_out = number(0, 1) == 1;
        operation.mismatch = number(0, 1) == 1;
        if (number(0, 1)) operation.waited_ago = duration();
        operation.polled = number(0, 1) == 1;
        return operation;
    }
    FailureReport failure() {
        FailureReport report{Rank{any()}, LocalRank{any()}, NodeRank{any()}, text(), any(),
                             {},          text(),           texts(),         text()};
        if (number(0, 1)) report.activity = text();
        report.oom = static_cast<OomKill>(number(0, 3));
        report.status = number(0, 1) ? ExitStatus{ExitStatus::Kind::kExited, number(0, 255), false}
                                     : ExitStatus{ExitStatus::Kind::kSignaled, number(1, 64), number(0, 1) == 1};
        report.failing_for = std::chrono::milliseconds(number(0, 1) ? 0 : number(1, 3'600'000));
        return report;
    }
    Verdict verdict() {
        Verdict verdict{static_cast<Outcome>(number(0, 3)), number(0, 255), text(), {}, any()};
        if (number(0, 1)) verdict.culprit = failure();
        if (number(0, 1)) verdict.judged = text();
        if (number(0, 1)) verdict.hint = text();
        verdict.bystander = number(0, 1) == 1;
        return verdict;
    }

    std::mt19937 random_;
};

}  // namespace ddprun::coordinator
