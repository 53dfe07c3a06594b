#include "rendezvous/coordinator/stall_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

namespace ddprun::coordinator {
namespace {

constexpr std::size_t kMaxRanges = 8;
constexpr std::size_t kMaxSides = 4;  // of a mismatch
constexpr std::size_t kMaxHosts = 4;  // of the ranks in one clause

/// What ranks compare; as describe(), without number and tag.
std::string signature(BoardOperation operation) {
    operation.tag.clear();
    const std::string text = describe(operation);
    const auto blank = text.find(' ');
    return blank == std::string::npos ? text : text.substr(blank + 1);
}

struct Side {
    std::vector<int> ranks;
    std::set<std::string> tags;
};

struct Calls {
    std::map<std::string, Side> sides;  ///< who called what
    std::set<std::uint64_t> fingerprints;
};

Calls calls_of(const GroupWaits& group, std::uint64_t seq) {
    Calls calls;
    for (const auto& [rank, member] : group.members()) {
        const BoardOperation* called = find_collective(member, seq);
        if (called == nullptr) continue;
        Side& side = calls.sides[signature(*called)];
        side.ranks.push_back(rank);
        side.tags.insert(called->tag);
        calls.fingerprints.insert(called->fingerprint);
    }
    return calls;
}

std::string what(const StallFinding& finding) {
    return fmt::format("{} of group '{}' for {}", describe(*finding.wait->operation), finding.group->name(),
                       how_long(finding.wait->waited));
}

std::string mismatch(const StallFinding& finding, const BoardsByRank& all) {
    const StallWait& wait = *finding.wait;
    if (wait.operation->p2p_seq != 0) {
        return fmt::format(
            "MISMATCH: {} is in {}, and {} in {}: the one must send what the other receives, with one tag",
            name_ranks({wait.rank}, all), what(finding), name_ranks({wait.peer}, all), describe(*wait.crossing));
    }
    const Calls calls = calls_of(*finding.group, wait.operation->seq);
    std::vector<std::pair<std::string, Side>> ordered(calls.sides.begin(), calls.sides.end());
    std::ranges::stable_sort(ordered, std::greater(), [](const auto& side) { return side.second.ranks.size(); });
    std::string text = fmt::format("MISMATCH at #{} of group '{}': ", wait.operation->seq, finding.group->name());
    for (std::size_t i = 0; i < std::min(ordered.size(), kMaxSides); ++i) {
        const auto& [called, side] = ordered[i];
        text += fmt::format("{}{} {}", i == 0 ? "" : ", ", name_ranks(side.ranks, all), called);
        if (side.tags.size() == 1 && !side.tags.begin()->empty()) text += fmt::format(" '{}'", *side.tags.begin());
    }
    if (ordered.size() > kMaxSides) text += fmt::format(" and {} more", ordered.size() - kMaxSides);
    if (ordered.size() == 1) text += " with different counts, or as parts of different steps";
    return text;
}

/// "LAGGING rank 7 (node b): last finished #182 all_reduce 'bucket 3', peers are in #183 …; in phase 'eval'"
std::string lagging(const StallFinding& finding, const BoardsByRank& all) {
    const int first = finding.ranks.front();
    const auto board = all.find(first);
    std::string text = fmt::format("LAGGING {}", name_ranks(finding.ranks, all));
    text += finding.ranks.size() > 1 ? fmt::format(": rank {} ", first) : ": ";
    const auto& members = finding.group->members();
    if (const auto member = members.find(first); member == members.end()) {
        text += "has nothing of the group on its board";
    } else if (const std::uint64_t done = member->second.group->done; done == 0) {
        text += "has finished nothing of the group";
    } else {
        const BoardOperation* last = find_collective(member->second, done);
        text += fmt::format("last finished {}", last != nullptr ? describe(*last) : fmt::format("#{}", done));
    }
    const bool alone = finding.wait->operation->p2p_seq != 0 || finding.group->beside(*finding.wait).size() <= 1;
    text += fmt::format(", {} in {}", alone ? fmt::format("rank {} waits", finding.wait->rank) : "peers wait",
                        what(finding));
    if (board == all.end()) return text;
    const RankBoard& who = *board->second;
    if (who.process == "stopped" && !who.process_before.empty())  // nothing is left to go on
        text += fmt::format("; its process {} was stopped (a signal, a debugger)", who.pid);
    else if (who.process == "stopped")
        text += fmt::format("; its process {} is stopped (a signal, a debugger): kill -CONT {}", who.pid, who.pid);
    else if (who.process == "unknown")
        text += fmt::format("; what its process {} does cannot be seen", who.pid);
    else if (who.process != "running")
        text += fmt::format("; its process {} is {}", who.pid, who.process);
    if (!who.view.phase.empty()) text += fmt::format("; in phase '{}'", who.view.phase);
    return text;
}

std::string unknown(const StallFinding& finding, const BoardsByRank& all) {
    if (finding.ranks.empty())
        return fmt::format("WAITING for ranks of which the boards do not say who they are: {} waits in {}",
                           name_ranks({finding.wait->rank}, all), what(finding));
    const auto board = all.find(finding.ranks.front());
    if (board != all.end() && board->second->view.hidden_groups > 0)
        return fmt::format(
            "WAITING for {}: rank {} computes, or waits in one of its {} groups that do not fit on its board: peers "
            "wait in {}",
            name_ranks(finding.ranks, all), finding.ranks.front(), board->second->view.hidden_groups, what(finding));
    return fmt::format("WAITING for {}, which {} shown no board: peers wait in {}", name_ranks(finding.ranks, all),
                       finding.ranks.size() == 1 ? "has" : "have", what(finding));
}

/// Of a collective the boards do not say which connection is slow; the hosts of those who wait narrow it down.
std::string all_present(const StallFinding& finding, const BoardsByRank& all) {
    const StallWait& wait = *finding.wait;
    constexpr const char* kHead = "ALL PRESENT but no progress: transport";
    if (wait.operation->p2p_seq == 0) {
        return fmt::format("{}, or work that takes long: {} in {}", kHead, name_ranks(finding.ranks, all),
                           what(finding));
    }
    const bool sends = wait.operation->op == "send";
    return fmt::format("{} from {} to {}, or work that takes long: rank {} in {}", kHead,
                       name_ranks({sends ? wait.rank : wait.peer}, all),
                       name_ranks({sends ? wait.peer : wait.rank}, all), wait.rank, what(finding));
}

/// Both sides: what one waits in, and what those are in that it waits for.
std::string circle(const StallFinding& finding, const BoardsByRank& all) {
    std::map<std::string, std::vector<int>> others;  ///< who waits in what
    for (const int rank : finding.ranks) {
        const BoardView& view = all.at(rank)->view;
        const BoardOperation* operation = in_hand(view);
        others[operation != nullptr ? describe(view, *operation) : "another operation"].push_back(rank);
    }
    std::string text =
        fmt::format("A CIRCLE: {} waits in {} for ", name_ranks({finding.wait->rank}, all), what(finding));
    std::size_t named = 0;
    for (const auto& [operation, ranks] : others) {
        if (named == kMaxSides) break;
        text += fmt::format("{}{}, which {} in {}", named == 0 ? "" : ", and for ", name_ranks(ranks, all),
                            ranks.size() == 1 ? "waits" : "wait", operation);
        ++named;
    }
    if (others.size() > named) text += fmt::format(", and for those in {} more", others.size() - named);
    return text + ": all ranks must call them in one order";
}

/// "0-3, 8, 10-12", "0, 2, … (500 in all)": at most eight ranges.
std::string ranges_of(const std::set<int>& ranks) {
    std::string text;
    std::size_t ranges = 0;
    for (auto at = ranks.begin(); at != ranks.end();) {
        const int first = *at;
        int last = first;
        while (++at != ranks.end() && *at == last + 1) ++last;
        if (++ranges > kMaxRanges) return text + fmt::format(", … ({} in all)", ranks.size());
        text += fmt::format("{}{}", ranges == 1 ? "" : ", ", first);
        if (last > first) text += fmt::format("-{}", last);
    }
    return text;
}

}  // namespace

bool is_mismatch(const GroupWaits& group, const StallWait& wait) {
    if (wait.operation->p2p_seq != 0) return wait.crossing != nullptr;
    const Calls calls = calls_of(group, wait.operation->seq);
    return calls.sides.size() > 1 || calls.fingerprints.size() > 1;
}

std::string describe(const StallFinding& finding, const BoardsByRank& all) {
    switch (finding.kind) {
        case StallKind::kDead: {
            const RankBoard& dead = *all.at(finding.ranks.front());
            return fmt::format("DEAD rank {} (node {}, {}): peers wait in {}", finding.ranks.front(), dead.host,
                               dead.process, what(finding));
        }
        case StallKind::kMismatch: return mismatch(finding, all);
        case StallKind::kLagging: return lagging(finding, all);
        case StallKind::kUnknown: return unknown(finding, all);
        case StallKind::kAllPresent: return all_present(finding, all);
        case StallKind::kCircle: return circle(finding, all);
        case StallKind::kNone: break;
    }
    return "";
}

std::string name_ranks(const std::vector<int>& given) {
    const std::set<int> ranks(given.begin(), given.end());
    return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", ranges_of(ranks));
}

std::string name_ranks(const std::vector<int>& given, const BoardsByRank& all) {
    std::map<std::string, std::set<int>> by_host;
    for (const int rank : given) {
        const auto board = all.find(rank);
        by_host[board != all.end() ? board->second->host : ""].insert(rank);
    }
    std::vector<std::pair<std::string, std::set<int>>> ordered(by_host.begin(), by_host.end());
    std::ranges::sort(ordered, {}, [](const auto& here) { return *here.second.begin(); });
    const std::set<int> ranks(given.begin(), given.end());
    std::string text = ranks.size() == 1 ? "rank" : "ranks";
    for (std::size_t i = 0; i < std::min(ordered.size(), kMaxHosts); ++i) {
        const auto& [host, there] = ordered[i];
        text += fmt::format("{} {}", i == 0 ? "" : ",", ranges_of(there));
        if (!host.empty()) text += fmt::format(" (node {})", host);
    }
    if (ordered.size() > kMaxHosts) text += fmt::format(", … ({} on {} nodes)", ranks.size(), ordered.size());
    return text;
}

}  // namespace ddprun::coordinator
