#include "rendezvous/diagnosis/snapshot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/text/number.hpp"
#include "common/text/words.hpp"
#include "rendezvous/diagnosis/hints.hpp"
#include "rendezvous/diagnosis/rewind.hpp"
#include "rendezvous/diagnosis/stall_text.hpp"

namespace ddprun::diagnosis {
namespace {

bool is_stopped(const RankRecord& record) { return !record.ended && record.process == ProcessState::kStopped; }

struct Stopped {
    std::vector<int> ranks;
    std::string names;  ///< "rank 1 (node b)"
    std::string pids;   ///< " 71"; of several nodes " 71 (node b), 80 93 (node c)"
};

Stopped find_stopped(const std::vector<RankRecord>& records) {
    RecordsByRank all;
    Stopped stopped;
    std::map<std::string, std::string> pids;
    for (const RankRecord& record : records) {
        all[number(record.rank)] = &record;
        if (!is_stopped(record)) continue;
        stopped.ranks.push_back(number(record.rank));
        pids[record.host] += fmt::format(" {}", record.pid);
    }
    stopped.names = name_ranks(stopped.ranks, all);
    for (const auto& [host, here] : pids) {
        stopped.pids += (stopped.pids.empty() ? "" : ",") + here;
        if (pids.size() > 1) stopped.pids += fmt::format(" ({})", name_node(host));
    }
    return stopped;
}

/// Returns "its process 71 is" or "their processes are".
std::string processes_are(const Stopped& stopped) {
    return stopped.ranks.size() == 1 ? fmt::format("its process{} is", stopped.pids) : "their processes are";
}

/// Returns "STOPPED rank 1 (node b): its process 71 is stopped (a signal, a debugger): kill -CONT 71". Empty: none is.
std::string describe_stopped(const std::vector<RankRecord>& records) {
    const Stopped stopped = find_stopped(records);
    if (stopped.ranks.empty()) return "";
    return fmt::format("STOPPED {}: {} stopped (a signal, a debugger): kill -CONT{}", stopped.names,
                       processes_are(stopped), stopped.pids);
}

/// duration_text() shows a wait this much shorter than `min_wait` as `min_wait`: the two lines of a dump must agree on
/// it.
constexpr std::chrono::milliseconds kRounding{50};

}  // namespace

std::string diagnose_now(const std::vector<RankRecord>& records, std::chrono::seconds min_wait) {
    if (const StallVerdict verdict = diagnose(records, min_wait - kRounding); verdict.kind != StallKind::kNone)
        return with_hint(verdict.text, verdict.hint);
    const StallVerdict timeout = diagnose_timeout(records);
    const std::string stopped = describe_stopped(records);
    const std::string nobody = fmt::format("no rank has waited in one operation for {}", seconds_text(min_wait));
    if (timeout.text.empty() && stopped.empty() && !records.empty() &&
        std::ranges::none_of(records, [](const RankRecord& record) { return record.view.written; })) {
        const bool answered =
            std::ranges::any_of(records, [](const RankRecord& record) { return record.process.has_value(); });
        return answered
                   ? "NOTHING IS KNOWN: no rank has a flight record, which programs write that use ddp::ddp, once they "
                     "have begun to. Look at its processes: py-spy dump, gdb -p, TORCH_FR_BUFFER_SIZE"
                   : "NOTHING IS KNOWN: no node has answered";
    }
    if (timeout.text.empty()) return stopped.empty() ? "RUNNING: " + nobody : stopped + "; " + nobody;
    std::string text =
        fmt::format("A deadline has passed in the last {}: {}", seconds_text(kRecentTimeout), timeout.text);
    if (!stopped.empty() && !timeout.names_stopped) text += "; " + stopped;
    return text;
}

/// A tool that inspects a process (py-spy, gdb -p) stops it for up to this long.
constexpr std::chrono::nanoseconds kMomentaryStop = std::chrono::seconds(3);

std::string diagnose_left_behind(const std::vector<RankRecord>& records) {
    std::optional<std::chrono::nanoseconds> longest;
    for (const RankRecord& record : records) {
        if (record.ended) continue;
        if (!is_stopped(record) || (record.stopped_for && *record.stopped_for < kMomentaryStop)) return "";
        if (record.stopped_for) longest = std::max(longest.value_or(std::chrono::nanoseconds(0)), *record.stopped_for);
    }
    const Stopped stopped = find_stopped(records);
    if (stopped.ranks.empty()) return "";
    const std::size_t ranks = stopped.ranks.size();
    return fmt::format(
        "LEFT BEHIND {}: all other ranks have exited with code 0, and the job waits for {}: {} stopped (a signal, a "
        "debugger){}: let {} go on with kill -CONT{}, or end the job",
        stopped.names, inflect(ranks, "this one", "these"), processes_are(stopped),
        longest ? fmt::format(", for {} or longer", duration_text(*longest)) : "", inflect(ranks, "it", "them"),
        stopped.pids);
}

}  // namespace ddprun::diagnosis
