#include "rendezvous/coordinator/stall_now.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/coordinator/stall_hints.hpp"
#include "rendezvous/coordinator/stall_rewind.hpp"
#include "rendezvous/coordinator/stall_words.hpp"

namespace ddprun::coordinator {
namespace {

bool is_stopped(const RankBoard& board) { return !board.ended && board.process == "stopped"; }

struct Stopped {
    std::vector<int> ranks;
    std::string names;  ///< "rank 1 (node b)"
    std::string pids;   ///< " 71"; of several nodes " 71 (node b), 80 93 (node c)"
};

Stopped who_is_stopped(const std::vector<RankBoard>& boards) {
    BoardsByRank all;
    Stopped stopped;
    std::map<std::string, std::string> pids;
    for (const RankBoard& board : boards) {
        all[number(board.rank)] = &board;
        if (!is_stopped(board)) continue;
        stopped.ranks.push_back(number(board.rank));
        pids[board.host] += fmt::format(" {}", board.pid);
    }
    stopped.names = name_ranks(stopped.ranks, all);
    for (const auto& [host, here] : pids) {
        stopped.pids += (stopped.pids.empty() ? "" : ",") + here;
        if (pids.size() > 1) stopped.pids += fmt::format(" (node {})", host);
    }
    return stopped;
}

/// "its process 71 is", "their processes are"
std::string processes_are(const Stopped& stopped) {
    return stopped.ranks.size() == 1 ? fmt::format("its process{} is", stopped.pids) : "their processes are";
}

/// "STOPPED rank 1 (node b): its process 71 is stopped (a signal, a debugger): kill -CONT 71". Empty: none is.
std::string describe_stopped(const std::vector<RankBoard>& boards) {
    const Stopped stopped = who_is_stopped(boards);
    if (stopped.ranks.empty()) return "";
    return fmt::format("STOPPED {}: {} stopped (a signal, a debugger): kill -CONT{}", stopped.names,
                       processes_are(stopped), stopped.pids);
}

}  // namespace

std::string judge_now(const std::vector<RankBoard>& boards, std::chrono::seconds patience) {
    if (const StallVerdict verdict = judge(boards, patience); verdict.kind != StallKind::kNone)
        return with_hint(verdict.text, verdict.hint);
    const std::string timeout = judge_timeout(boards).text;
    const std::string stopped = describe_stopped(boards);
    const std::string nobody = fmt::format("no rank has waited in one operation for {} s", patience.count());
    if (timeout.empty() && stopped.empty() && !boards.empty() &&
        std::ranges::none_of(boards, [](const RankBoard& board) { return board.view.written; })) {
        const bool answered =
            std::ranges::any_of(boards, [](const RankBoard& board) { return !board.process.empty(); });
        return answered ? "NOTHING IS KNOWN: no rank has a board, which programs write that use ddp::ddp, once they "
                          "have begun to. Look at its processes: py-spy dump, gdb -p, TORCH_FR_BUFFER_SIZE"
                        : "NOTHING IS KNOWN: no node has answered";
    }
    if (timeout.empty()) return stopped.empty() ? "GOING ON: " + nobody : stopped + "; " + nobody;
    std::string text = fmt::format("A deadline has passed in the last {} s: {}", kRecentTimeout.count(), timeout);
    if (!stopped.empty() && timeout.find("kill -CONT") == std::string::npos) text += "; " + stopped;
    return text;
}

/// Whoever looks at a process (py-spy, gdb -p) stops it for a moment.
constexpr std::chrono::nanoseconds kPassing = std::chrono::seconds(3);

std::string judge_left_behind(const std::vector<RankBoard>& boards) {
    std::optional<std::chrono::nanoseconds> longest;
    for (const RankBoard& board : boards) {
        if (board.ended) continue;
        if (!is_stopped(board) || (board.stopped_for && *board.stopped_for < kPassing)) return "";
        if (board.stopped_for) longest = std::max(longest.value_or(std::chrono::nanoseconds(0)), *board.stopped_for);
    }
    const Stopped stopped = who_is_stopped(boards);
    if (stopped.ranks.empty()) return "";
    const bool one = stopped.ranks.size() == 1;
    return fmt::format(
        "LEFT BEHIND {}: all other ranks have ended well, and the job waits for {}: {} stopped (a signal, a "
        "debugger){}: let {} go on with kill -CONT{}, or end the job",
        stopped.names, one ? "this one" : "these", processes_are(stopped),
        longest ? fmt::format(", for {} or longer", how_long(*longest)) : "", one ? "it" : "them", stopped.pids);
}

}  // namespace ddprun::coordinator
