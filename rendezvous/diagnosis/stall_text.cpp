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

/// Ranks that called the same.
struct Side {
    const BoardOperation* called = nullptr;
    std::vector<int> ranks;
    std::set<std::string> tags;
};

/// The largest first.
std::vector<Side> sides_of(const GroupWaits& group, std::uint64_t seq) {
    std::map<std::pair<std::string, std::uint64_t>, Side> sides;
    for (const auto& [rank, member] : group.members()) {
        const BoardOperation* called = find_collective(member, seq);
        if (called == nullptr) continue;
        Side& side = sides[{signature(*called), called->fingerprint}];
        side.called = called;
        side.ranks.push_back(rank);
        side.tags.insert(called->tag);
    }
    std::vector<Side> ordered;
    for (auto& [what, side] : sides) ordered.push_back(std::move(side));
    std::ranges::stable_sort(ordered, std::greater(), [](const Side& side) { return side.ranks.size(); });
    return ordered;
}

std::string what(const StallFinding& finding) {
    return fmt::format("{} of group '{}' for {}", describe(*finding.wait->operation), finding.group->name(),
                       how_long(finding.wait->waited));
}

/// "nobody asks for what rank 0 (node a) has sent it, send #3 f32[4] peer 1 tag 5"
std::string unasked(const StallWait& wait, const std::string& receiver, const BoardsByRank& all) {
    BoardOperation sent = *wait.unasked;
    sent.op = "send";
    sent.peer = wait.who.group->rank;
    return fmt::format("nobody asks for what {} has sent {}, {}", name_ranks({wait.peer}, all), receiver,
                       describe(sent));
}

std::string mismatch(const StallFinding& finding, const BoardsByRank& all) {
    const StallWait& wait = *finding.wait;
    if (wait.unasked != nullptr) {
        return fmt::format(
            "MISMATCH: {} is in {}, and {}: the one must send what the other receives, with one tag, unless {} is "
            "still to send it",
            name_ranks({wait.rank}, all), what(finding), unasked(wait, "it", all), name_ranks({wait.peer}, all));
    }
    if (wait.operation->p2p_seq != 0) {
        return fmt::format(
            "MISMATCH: {} is in {}, and {} in {}: the one must send what the other receives, with one tag",
            name_ranks({wait.rank}, all), what(finding), name_ranks({wait.peer}, all), describe(*wait.crossing));
    }
    const std::vector<Side> sides = sides_of(*finding.group, wait.operation->seq);
    const bool alike = std::ranges::all_of(
        sides, [&](const Side& side) { return signature(*side.called) == signature(*sides.front().called); });
    std::string text = fmt::format("MISMATCH at #{} of group '{}': ", wait.operation->seq, finding.group->name());
    for (std::size_t i = 0; i < std::min(sides.size(), kMaxSides); ++i) {
        const Side& side = sides[i];
        text += fmt::format("{}{} {}", i == 0 ? "" : ", ", name_ranks(side.ranks, all), signature(*side.called));
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

/// "; its process 71 is stopped …"; empty: it runs. What is over is not to be woken.
std::string process_words(const RankBoard& who, Tense tense) {
    const bool was = tense == Tense::kPast;
    if (who.process == "running") return "";
    if (who.process == "unknown")
        return fmt::format("; what its process {} {} be seen", who.pid, was ? "did could not" : "does cannot");
    std::string text = fmt::format("; its process {} {} {}", who.pid, was ? "was" : "is", who.process);
    if (who.process != "stopped") return text;
    text += " (a signal, a debugger)";
    return was ? text : text + fmt::format(": kill -CONT {}", who.pid);
}

/// "LAGGING rank 7 (node b): last finished #182 all_reduce 'bucket 3', peers are in #183 …; in phase 'eval'"
std::string lagging(const StallFinding& finding, const BoardsByRank& all, Tense tense) {
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
    text += process_words(who, who.process_before.empty() ? tense : Tense::kPast);
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
    text += ": all ranks must call them in one order";
    if (finding.wait->unasked == nullptr) return text;
    return text + "; " + unasked(*finding.wait, fmt::format("rank {}", finding.wait->rank), all);
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
    return sides_of(group, wait.operation->seq).size() > 1;
}

std::vector<int> odd_ones(const GroupWaits& group, const StallWait& wait) {
    const std::vector<Side> sides = sides_of(group, wait.operation->seq);
    const bool known = sides.size() > 1 && sides[0].ranks.size() > sides[1].ranks.size();
    std::vector<int> ranks;
    for (std::size_t i = known ? 1 : 0; i < sides.size(); ++i)
        ranks.insert(ranks.end(), sides[i].ranks.begin(), sides[i].ranks.end());
    return ranks;
}

std::string describe(const StallFinding& finding, const BoardsByRank& all, Tense tense) {
    switch (finding.kind) {
        case StallKind::kDead: {
            const RankBoard& dead = *all.at(finding.ranks.front());
            return fmt::format("DEAD rank {} (node {}, {}): peers wait in {}", finding.ranks.front(), dead.host,
                               dead.process, what(finding));
        }
        case StallKind::kMismatch: return mismatch(finding, all);
        case StallKind::kLagging: return lagging(finding, all, tense);
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
