#include "rendezvous/coordinator/stall_now.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/coordinator/stall_rewind.hpp"
#include "rendezvous/coordinator/stall_words.hpp"

namespace ddprun::coordinator {
namespace {

/// "STOPPED rank 1 (node b): its process 71 is stopped (a signal, a debugger): kill -CONT 71"; of several nodes each
/// process with its own: "kill -CONT 71 (node b), 80 93 (node c)". Empty: none is.
std::string who_is_stopped(const std::vector<RankBoard>& boards) {
    BoardsByRank all;
    std::vector<int> stopped;
    std::map<std::string, std::string> pids;
    for (const RankBoard& board : boards) {
        all[number(board.rank)] = &board;
        if (board.ended || board.process != "stopped") continue;
        stopped.push_back(number(board.rank));
        pids[board.host] += fmt::format(" {}", board.pid);
    }
    if (stopped.empty()) return "";
    std::string by_node;
    for (const auto& [host, here] : pids) {
        by_node += (by_node.empty() ? "" : ",") + here;
        if (pids.size() > 1) by_node += fmt::format(" (node {})", host);
    }
    return fmt::format("STOPPED {}: {} stopped (a signal, a debugger): kill -CONT{}", name_ranks(stopped, all),
                       stopped.size() == 1 ? fmt::format("its process{} is", by_node) : "their processes are", by_node);
}

}  // namespace

std::string judge_now(const std::vector<RankBoard>& boards, std::chrono::seconds patience) {
    if (const StallVerdict verdict = judge(boards, patience); verdict.kind != StallKind::kNone) return verdict.text;
    const std::string timeout = judge_timeout(boards).text;
    const std::string stopped = who_is_stopped(boards);
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

}  // namespace ddprun::coordinator
