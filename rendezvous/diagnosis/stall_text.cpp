#include "rendezvous/diagnosis/stall_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "common/text/words.hpp"

namespace ddprun::diagnosis {
namespace {

constexpr std::size_t kMaxSides = 4;  // of a mismatch
constexpr std::size_t kMaxHosts = 4;  // of the ranks in one clause

/// Ranks that called the same operation.
struct Side {
    const RecordedOperation* called = nullptr;
    std::vector<int> ranks;
    std::set<std::string> tags;
};

/// What the ranks of a collective must agree on and a text shows: what, reduction, type, count and root.
using Call = std::tuple<std::string, std::string, std::string, std::uint64_t, int>;

Call call_of(const RecordedOperation& operation) {
    return {operation.op, operation.reduce, operation.dtype, operation.count, operation.peer};
}

/// Returns the sides of a collective, the largest first.
std::vector<Side> sides_of(const GroupWaits& group, std::uint64_t seq) {
    std::map<std::pair<Call, std::uint64_t>, Side> sides;  // by call and fingerprint
    for (const auto& [rank, member] : group.members()) {
        const RecordedOperation* called = find_collective(member, seq);
        if (called == nullptr) continue;
        Side& side = sides[{call_of(*called), called->fingerprint}];
        side.called = called;
        side.ranks.push_back(rank);
        side.tags.insert(called->tag);
    }
    std::vector<Side> ordered;
    for (auto& [what, side] : sides) ordered.push_back(std::move(side));
    std::ranges::stable_sort(
        ordered, {}, [](const Side& side) { return std::pair(-std::ssize(side.ranks), describe_call(*side.called)); });
    return ordered;
}

std::string what(const StallFinding& finding) {
    return fmt::format("{} of group '{}' for {}", describe(*finding.wait->operation), finding.group->name(),
                       duration_text(finding.wait->waited));
}

/// Returns "no receive matches the message that rank 0 (node a) has sent it, send #3 f32[4] peer 1 tag 5".
std::string unmatched(const StallWait& wait, const std::string& receiver, const RecordsByRank& all) {
    RecordedOperation sent = *wait.unmatched;
    sent.op = "send";
    sent.peer = wait.member.group->rank;
    return fmt::format("no receive matches the message that {} has sent {}, {}", name_ranks({wait.peer}, all), receiver,
                       describe(sent));
}

std::string mismatch(const StallFinding& finding, const RecordsByRank& all) {
    const StallWait& wait = *finding.wait;
    if (wait.unmatched != nullptr) {
        return fmt::format(
            "MISMATCH: {} is in {}, and {}: the send and the receive must match and have the same tag, unless {} is "
            "still to send it",
            name_ranks({wait.rank}, all), what(finding), unmatched(wait, "it", all), name_ranks({wait.peer}, all));
    }
    if (wait.operation->p2p_seq != 0) {
        return fmt::format(
            "MISMATCH: {} is in {}, and {} in {}: the send and the receive must match and have the same tag",
            name_ranks({wait.rank}, all), what(finding), name_ranks({wait.peer}, all), describe(*wait.crossing));
    }
    const std::vector<Side> sides = sides_of(*finding.group, wait.operation->seq);
    const bool alike = std::ranges::all_of(
        sides, [&](const Side& side) { return call_of(*side.called) == call_of(*sides.front().called); });
    std::string text = fmt::format("MISMATCH at #{} of group '{}': ", wait.operation->seq, finding.group->name());
    for (std::size_t i = 0; i < std::min(sides.size(), kMaxSides); ++i) {
        const Side& side = sides[i];
        text += fmt::format("{}{} {}", i == 0 ? "" : ", ", name_ranks(side.ranks, all), describe_call(*side.called));
        if (side.tags.size() == 1 && !side.tags.begin()->empty()) text += fmt::format(" '{}'", *side.tags.begin());
        if (alike && side.called->op.ends_with("_v") && side.called->op != "all_to_all_v")  // which shares none
            text += i == 0 ? " with one list of counts" : " with another list of counts";
        else if (alike)
            text +=
                side.called->fingerprint != 0 ? fmt::format(" of step {}", side.called->fingerprint) : " of no step";
    }
    if (sides.size() > kMaxSides) text += fmt::format(" and {} more", sides.size() - kMaxSides);
    return text;
}

/// Returns "; its process 71 is stopped …". Returns an empty text if the process runs. The past tense omits the command
/// that continues it.
std::string process_text(const RankRecord& record, Tense tense) {
    const bool was = tense == Tense::kPast;
    if (record.process == ProcessState::kRunning) return "";
    if (record.process == ProcessState::kUnknown)
        return fmt::format("; the state of its process {} {} unknown", record.pid, was ? "was" : "is");
    std::string text = fmt::format("; its process {} {} {}", record.pid, was ? "was" : "is", describe_process(record));
    if (record.process != ProcessState::kStopped) return text;
    text += " (a signal, a debugger)";
    return was ? text : text + fmt::format(": kill -CONT {}", record.pid);
}

/// Returns "; the NCCL thread of rank 7 has been in ncclAllReduce of group 'world' for 40.0 s": of the group's members,
/// the one whose call is the longest. It may have called the operation, and still be the one that the others wait for.
/// Empty: no member is in a call.
std::string device_call_text(const StallFinding& finding, const RecordsByRank& all, Tense tense) {
    const RankRecord* longest = nullptr;
    for (const auto& [rank, member] : finding.group->members()) {
        const auto record = all.find(rank);
        if (record == all.end() || record->second->view.device_call.name.empty()) continue;
        if (longest == nullptr || record->second->view.device_call.time > longest->view.device_call.time)
            longest = record->second;
    }
    if (longest == nullptr) return "";
    return fmt::format("; the NCCL thread of rank {} {} been in {} for {}", number(longest->rank),
                       tense == Tense::kPast ? "had" : "has", describe_device_call(longest->view),
                       duration_text(longest->view.device_call.time));
}

/// Returns "LAGGING rank 7 (node b): last finished #182 all_reduce 'bucket 3', peers are in #183 …; in phase 'eval'".
std::string lagging(const StallFinding& finding, const RecordsByRank& all, Tense tense) {
    const int first = finding.ranks.front();
    const auto record = all.find(first);
    std::string text = fmt::format("LAGGING {}", name_ranks(finding.ranks, all));
    text += finding.ranks.size() > 1 ? fmt::format(": rank {} ", first) : ": ";
    const auto& members = finding.group->members();
    if (const auto member = members.find(first); member == members.end()) {
        text += "has no operation of the group in its flight record";
    } else if (const std::uint64_t done = member->second.group->done; done == 0) {
        text += "has completed no operation of the group";
    } else {
        const RecordedOperation* last = find_collective(member->second, done);
        text += fmt::format("last finished {}", last != nullptr ? describe(*last) : fmt::format("#{}", done));
    }
    const bool alone = finding.wait->operation->p2p_seq != 0 || finding.group->participants(*finding.wait).size() <= 1;
    text += fmt::format(", {} in {}", alone ? fmt::format("rank {} waits", finding.wait->rank) : "peers wait",
                        what(finding));
    if (record == all.end()) return text;
    const RankRecord& late = *record->second;
    text += process_text(late, late.process_before ? Tense::kPast : tense);
    text += device_call_text(finding, all, tense);
    if (!late.view.phase.empty()) text += fmt::format("; in phase '{}'", late.view.phase);
    return text;
}

std::string unknown(const StallFinding& finding, const RecordsByRank& all) {
    if (finding.ranks.empty())
        return fmt::format("WAITING for ranks that the flight records do not identify: {} waits in {}",
                           name_ranks({finding.wait->rank}, all), what(finding));
    const auto record = all.find(finding.ranks.front());
    if (record != all.end() && record->second->view.hidden_groups > 0)
        return fmt::format(
            "WAITING for {}: whether rank {} computes or waits is unknown because {} of its groups {} not recorded: "
            "peers "
            "wait in {}",
            name_ranks(finding.ranks, all), finding.ranks.front(), record->second->view.hidden_groups,
            inflect(record->second->view.hidden_groups, "is", "are"), what(finding));
    return fmt::format("WAITING for {}, which {} shown no flight record: peers wait in {}",
                       name_ranks(finding.ranks, all), inflect(finding.ranks.size(), "has", "have"), what(finding));
}

/// The flight records do not show which connection of a collective is slow; the hosts of the waiting ranks narrow it
/// down.
std::string all_present(const StallFinding& finding, const RecordsByRank& all, Tense tense) {
    const StallWait& wait = *finding.wait;
    constexpr const char* kHead = "ALL PRESENT but no progress: transport";
    if (wait.operation->p2p_seq == 0) {
        return fmt::format("{}, or work that takes long: {} in {}{}", kHead, name_ranks(finding.ranks, all),
                           what(finding), device_call_text(finding, all, tense));
    }
    const bool sends = wait.operation->op == "send";
    return fmt::format("{} from {} to {}, or work that takes long: rank {} in {}", kHead,
                       name_ranks({sends ? wait.rank : wait.peer}, all),
                       name_ranks({sends ? wait.peer : wait.rank}, all), wait.rank, what(finding));
}

/// Names both sides: the operation of the rank that waits, and the operations of the ranks that it waits for.
std::string circle(const StallFinding& finding, const RecordsByRank& all) {
    std::map<std::string, std::vector<int>> others;  ///< ranks by the operation in which they wait
    for (const int rank : finding.ranks) {
        const FlightRecord& view = all.at(rank)->view;
        const RecordedOperation* operation = current_operation(view);
        others[operation != nullptr ? describe(view, *operation) : "another operation"].push_back(rank);
    }
    std::string text =
        fmt::format("A CIRCLE: {} waits in {} for ", name_ranks({finding.wait->rank}, all), what(finding));
    std::size_t named = 0;
    for (const auto& [operation, ranks] : others) {
        if (named == kMaxSides) break;
        text += fmt::format("{}{}, which {} in {}", named == 0 ? "" : ", and for ", name_ranks(ranks, all),
                            inflect(ranks.size(), "waits", "wait"), operation);
        ++named;
    }
    if (others.size() > named) text += fmt::format(", and for those in {} more", others.size() - named);
    text += ": all ranks must call them in one order";
    if (finding.wait->unmatched == nullptr) return text;
    return text + "; " + unmatched(*finding.wait, fmt::format("rank {}", finding.wait->rank), all);
}

}  // namespace

bool is_mismatch(const GroupWaits& group, const StallWait& wait) {
    if (wait.operation->p2p_seq != 0) return wait.crossing != nullptr;
    return sides_of(group, wait.operation->seq).size() > 1;
}

std::vector<int> minority_ranks(const GroupWaits& group, const StallWait& wait) {
    const std::vector<Side> sides = sides_of(group, wait.operation->seq);
    const bool known = sides.size() > 1 && sides[0].ranks.size() > sides[1].ranks.size();
    std::vector<int> ranks;
    for (std::size_t i = known ? 1 : 0; i < sides.size(); ++i)
        ranks.insert(ranks.end(), sides[i].ranks.begin(), sides[i].ranks.end());
    return ranks;
}

std::string describe(const StallFinding& finding, const RecordsByRank& all, Tense tense) {
    switch (finding.kind) {
        case StallKind::kDead: {
            const RankRecord& dead = *all.at(finding.ranks.front());
            return fmt::format("DEAD rank {} ({}, {}): peers wait in {}", finding.ranks.front(), name_node(dead.host),
                               describe_process(dead), what(finding));
        }
        case StallKind::kMismatch: return mismatch(finding, all);
        case StallKind::kLagging: return lagging(finding, all, tense);
        case StallKind::kUnknown: return unknown(finding, all);
        case StallKind::kAllPresent: return all_present(finding, all, tense);
        case StallKind::kCircle: return circle(finding, all);
        case StallKind::kLink:  // link.cpp makes its text
        case StallKind::kNone: break;
    }
    return "";
}

bool names_stopped_process(const StallFinding& finding, const RecordsByRank& all) {
    if (finding.kind != StallKind::kLagging) return false;
    const auto record = all.find(finding.ranks.front());
    return record != all.end() && record->second->process == ProcessState::kStopped && !record->second->process_before;
}

std::string name_ranks(const std::vector<int>& given, const RecordsByRank& all) {
    std::map<std::string, std::set<int>> by_host;
    for (const int rank : given) {
        const auto record = all.find(rank);
        by_host[record != all.end() ? record->second->host : ""].insert(rank);
    }
    std::vector<std::pair<std::string, std::set<int>>> ordered(by_host.begin(), by_host.end());
    std::ranges::sort(ordered, {}, [](const auto& here) { return *here.second.begin(); });
    const std::set<int> ranks(given.begin(), given.end());
    std::string text(inflect(ranks.size(), "rank", "ranks"));
    for (std::size_t i = 0; i < std::min(ordered.size(), kMaxHosts); ++i) {
        const auto& [host, there] = ordered[i];
        text += fmt::format("{} {}", i == 0 ? "" : ",", ranges_of(there));
        if (!host.empty()) text += fmt::format(" ({})", name_node(host));
    }
    if (ordered.size() > kMaxHosts) text += fmt::format(", … ({} on {} nodes)", ranks.size(), ordered.size());
    return text;
}

}  // namespace ddprun::diagnosis
