#include "rendezvous/diagnosis/hints.hpp"
#include "common/text/words.hpp"

#include <fmt/format.h>

#include <set>
#include <string_view>

namespace ddprun::diagnosis {
namespace {

constexpr const char* kBatch = "put them into one ProcessGroup::batch()";

std::string mismatch_hint(const StallWait& wait) {
    if (wait.operation->p2p_seq == 0)
        return "All ranks must call the same collectives, in one order and with the same sizes: look for one under "
               "`if rank == …`, or in a loop that is longer on some ranks";
    if (wait.unmatched != nullptr) return "Give the send and its receive the same tag";
    const bool sends = wait.operation->op == "send";
    if (wait.crossing == nullptr || (wait.crossing->op == "send") != sends)
        return "Give the send and its receive the same tag";
    if (sends)
        return fmt::format("Each of the two waits until the other receives: {}, or let one receive first", kBatch);
    return "Each of the two waits until the other sends: one of the two has to send first";
}

/// Returns how to find out what a rank does. In the past tense its process does not exist any more.
std::string process_hint(const RankRecord& record, Tense tense) {
    const bool stopped = record.process == ProcessState::kStopped || record.process_before == ProcessState::kStopped;
    if (tense == Tense::kPresent) {
        if (stopped || record.pid <= 0) return "";  // the line names the command that continues it
        return fmt::format("`py-spy dump --pid {}` or `gdb -p {}` on {} shows where it is", record.pid, record.pid,
                           name_node(record.host));
    }
    if (stopped)
        return "That process was stopped by Ctrl-Z, a debugger or kill -STOP. While the job stands still, kill -CONT "
               "continues it";
    return "While the job stands still, `ddpctl dump` shows what all ranks do, and `py-spy dump` or `gdb -p` where "
           "that one is; if it is only slow, give the operation a longer timeout";
}

/// Returns whether all ranks that take part in the operation are on one host, as far as that is known. In a collective
/// these are all members of the group: finding.ranks lacks those that have ended it already.
bool is_on_one_host(const StallFinding& finding, const RecordsByRank& all) {
    std::set<std::string_view> hosts;
    if (finding.group != nullptr && finding.wait != nullptr && finding.wait->operation->p2p_seq == 0) {
        for (const auto& [rank, member] : finding.group->members()) hosts.insert(member.record->host);
    }
    for (const int rank : finding.ranks) {
        const auto record = all.find(rank);
        hosts.insert(record == all.end() ? "" : std::string_view(record->second->host));
    }
    return hosts.size() == 1 && !hosts.begin()->empty();
}

constexpr const char* kIfLarge = "if the data are just large, give the operation a longer timeout";

/// Returns what to look at when all ranks are in an operation that does not end.
std::string all_present_hint(const StallFinding& finding, const RecordsByRank& all, Tense tense) {
    if (!is_on_one_host(finding, all)) return fmt::format("Look at the network between these nodes; {}", kIfLarge);
    return fmt::format(
        "They are all on one node, so it is not the network: {}`py-spy dump --pid` or `gdb -p` shows where each rank "
        "is, and with GPUs `nvidia-smi` and `dmesg | grep Xid` whether one has failed; {}",
        tense == Tense::kPast ? "while such a job waits, " : "", kIfLarge);
}

}  // namespace

std::vector<int> culprits(const StallFinding& finding) {
    switch (finding.kind) {
        case StallKind::kDead:
        case StallKind::kLagging: return finding.ranks;
        case StallKind::kCircle: {
            std::vector<int> ranks = finding.ranks;
            ranks.push_back(finding.wait->rank);
            return ranks;
        }
        case StallKind::kMismatch:
            if (finding.wait->operation->p2p_seq != 0) return {finding.wait->rank, finding.wait->peer};
            return minority_ranks(*finding.group, *finding.wait);
        case StallKind::kUnknown:  // their agent may only be slow to answer
        case StallKind::kAllPresent:
        case StallKind::kLink:
        case StallKind::kNone: break;
    }
    return {};
}

std::string hint_for(const StallFinding& finding, const RecordsByRank& all, Tense tense) {
    const bool transfer = finding.wait != nullptr && finding.wait->operation->p2p_seq != 0;
    switch (finding.kind) {
        case StallKind::kDead: {
            const auto record = all.find(finding.ranks.front());
            const bool well = record != all.end() && record->second->status && record->second->status->success();
            if (!well) return "";
            return record->second->view.written ? kStepsHint : "All ranks must call ddp::init_from_env()";
        }
        case StallKind::kMismatch: return mismatch_hint(*finding.wait);
        case StallKind::kLagging: {
            const auto record = all.find(finding.ranks.front());
            return record == all.end() ? "" : process_hint(*record->second, tense);
        }
        case StallKind::kUnknown:
            // A rank with groups that are not recorded has called init_from_env().
            if (const auto record = finding.ranks.empty() ? all.end() : all.find(finding.ranks.front());
                record != all.end() && record->second->view.hidden_groups > 0)
                return process_hint(*record->second, tense);
            return "Check that ddprun runs there, and that its program has called ddp::init_from_env()";
        case StallKind::kAllPresent: return all_present_hint(finding, all, tense);
        case StallKind::kCircle:
            return transfer ? fmt::format("Where sends and receives wait for each other, {}", kBatch) : "";
        case StallKind::kLink:
        case StallKind::kNone: break;
    }
    return "";
}

std::string with_hint(const std::string& line, const std::string& hint) {
    return hint.empty() ? line : fmt::format("{}. {}", line, hint);
}

std::string abort_hint(int rank) {
    return fmt::format(
        "That rank did so itself, for the reason quoted (an error there, or ProcessGroup::abort): see what rank {} "
        "printed before",
        rank);
}

}  // namespace ddprun::diagnosis
