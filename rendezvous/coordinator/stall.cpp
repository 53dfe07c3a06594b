#include "rendezvous/coordinator/stall.hpp"

#include <fmt/format.h>

#include <algorithm>
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

constexpr std::size_t kMaxRanges = 8;
constexpr std::size_t kMaxSides = 4;  // of a mismatch

/// A rank in one group.
struct Member {
    const RankBoard* board = nullptr;
    const BoardGroup* group = nullptr;
    int index = 0;  ///< of the group on that board
};

/// An operation in hand.
struct Wait {
    Member who;
    const BoardOperation* operation = nullptr;
    std::set<int> for_ranks;  ///< of the job; empty: all have come
};

struct Finding {
    StallKind kind = StallKind::kNone;
    nanoseconds waited{0};
    std::string text;
    std::string group = {};
    std::uint64_t seq = 0;
};

int rank_of(const Member& member) { return number(member.board->rank); }

/// Rank in the job of rank `index` of a group; -1: the board does not say.
int world_rank(const BoardGroup& group, int index) {
    for (const RankRun& run : group.members) {
        if (index < run.count) return run.first + index * run.stride;
        index -= run.count;
    }
    return -1;
}

const BoardOperation* find(const Member& member, std::uint64_t seq) {
    for (const BoardOperation& operation : member.board->view.operations) {
        if (operation.group == member.index && operation.p2p_seq == 0 && operation.seq == seq) return &operation;
    }
    return nullptr;
}

/// What ranks compare; as describe(), without number and tag.
std::string signature(BoardOperation operation) {
    operation.tag.clear();
    const std::string text = describe(operation);
    const auto blank = text.find(' ');
    return blank == std::string::npos ? text : text.substr(blank + 1);
}

/// All that is known about one group of the job.
class GroupCase {
public:
    GroupCase(std::string name, std::map<int, Member> members) : name_(std::move(name)), members_(std::move(members)) {}

    /// The oldest collective that somebody is stuck in, and for whom each of those waits.
    void look(nanoseconds patience) {
        for (const auto& [rank, member] : members_) {
            for (const BoardOperation& operation : member.board->view.operations) {
                const bool stuck = operation.group == member.index && operation.started_ago && !operation.ended_ago &&
                                   *operation.started_ago >= patience;
                if (stuck) add(member, operation);
            }
        }
        // All that are in the collective wait for the same ranks: who has been there longest speaks for them.
        std::ranges::stable_sort(waits_, std::greater(), [](const Wait& w) { return *w.operation->started_ago; });
        bool collective_told = false;
        for (Wait& wait : waits_) {
            if (wait.operation->p2p_seq == 0 && std::exchange(collective_told, true)) continue;
            find_absent(wait);
            speakers_.push_back(wait);
        }
    }

    [[nodiscard]] const std::vector<Wait>& waits() const { return waits_; }
    [[nodiscard]] std::vector<Finding> findings(const std::set<int>& waiting,
                                                const std::map<int, const RankBoard*>& all) const;

private:
    void add(const Member& member, const BoardOperation& operation) {
        const auto current = std::ranges::find_if(waits_, [](const Wait& w) { return w.operation->p2p_seq == 0; });
        const bool collective = operation.p2p_seq == 0;
        if (collective && current != waits_.end() && operation.seq > current->operation->seq)
            return;  // that comes later
        if (collective && current != waits_.end() && operation.seq < current->operation->seq)
            std::erase_if(waits_, [](const Wait& w) { return w.operation->p2p_seq == 0; });
        waits_.push_back({member, &operation, {}});
    }

    void find_absent(Wait& wait) const {
        const auto absent = [&](int rank) {
            const auto there = members_.find(rank);
            if (there == members_.end()) return true;
            const BoardGroup& group = *there->second.group;
            return (there->second.board->ended ? group.done : group.queued) < wait.operation->seq;
        };
        if (wait.operation->p2p_seq != 0) {
            const int peer = world_rank(*wait.who.group, wait.operation->peer);
            const bool also_here = std::ranges::any_of(waits_, [&](const Wait& other) {
                return other.operation->p2p_seq != 0 && rank_of(other.who) == peer &&
                       world_rank(*other.who.group, other.operation->peer) == rank_of(wait.who);
            });
            if (peer >= 0 && !also_here) wait.for_ranks.insert(peer);
            return;
        }
        int listed = 0;
        for (const RankRun& run : wait.who.group->members) {
            for (int i = 0; i < run.count && listed < kMaxListed; ++i, ++listed) {
                if (const int rank = run.first + i * run.stride; absent(rank)) wait.for_ranks.insert(rank);
            }
        }
        for (const auto& [rank, member] : members_) {  // those of a group whose list did not fit
            if (absent(rank)) wait.for_ranks.insert(rank);
        }
    }

    [[nodiscard]] std::string what(const Wait& wait) const {
        return fmt::format("{} of group '{}' for {}", describe(*wait.operation), name_,
                           how_long(*wait.operation->started_ago));
    }
    [[nodiscard]] std::optional<Finding> mismatch(const Wait& wait) const;
    [[nodiscard]] std::string lagging(const Wait& wait, const std::vector<int>& ranks,
                                      const std::map<int, const RankBoard*>& all) const;

    static constexpr int kMaxListed = 1 << 14;  // of what a worker has written: it may be anything

    std::string name_;
    std::map<int, Member> members_;  ///< by rank of the job
    std::vector<Wait> waits_;
    std::vector<Wait> speakers_;
};

std::optional<Finding> GroupCase::mismatch(const Wait& wait) const {
    if (wait.operation->p2p_seq != 0) return std::nullopt;
    std::map<std::string, std::vector<int>> sides;
    std::set<std::uint64_t> fingerprints;
    for (const auto& [rank, member] : members_) {
        const BoardOperation* called = find(member, wait.operation->seq);
        if (called == nullptr) continue;
        sides[signature(*called)].push_back(rank);
        fingerprints.insert(called->fingerprint);
    }
    if (sides.size() < 2 && fingerprints.size() < 2) return std::nullopt;
    std::vector<std::pair<std::string, std::vector<int>>> ordered(sides.begin(), sides.end());
    std::ranges::stable_sort(ordered, std::greater(), [](const auto& side) { return side.second.size(); });
    std::string text = fmt::format("MISMATCH at #{} of group '{}': ", wait.operation->seq, name_);
    for (std::size_t i = 0; i < std::min(ordered.size(), kMaxSides); ++i) {
        text += fmt::format("{}{} {}", i == 0 ? "" : ", ", name_ranks(ordered[i].second), ordered[i].first);
    }
    if (ordered.size() > kMaxSides) text += fmt::format(" and {} more", ordered.size() - kMaxSides);
    if (ordered.size() == 1) text += " with different counts";
    return Finding{StallKind::kMismatch, *wait.operation->started_ago, std::move(text)};
}

/// "LAGGING rank 7 (node b): last finished #182 all_reduce 'bucket 3', peers are in #183 …; in phase 'eval'"
std::string GroupCase::lagging(const Wait& wait, const std::vector<int>& ranks,
                               const std::map<int, const RankBoard*>& all) const {
    const int first = ranks.front();
    const auto board = all.find(first);
    std::string text = fmt::format("LAGGING {}", name_ranks(ranks));
    if (board != all.end()) text += fmt::format(" (node {})", board->second->host);
    text += ranks.size() > 1 ? fmt::format(": rank {} ", first) : ": ";
    if (const auto member = members_.find(first); member == members_.end()) {
        text += "is not in the group";
    } else if (const std::uint64_t done = member->second.group->done; done == 0) {
        text += "has finished nothing of the group";
    } else {
        const BoardOperation* last = find(member->second, done);
        text += fmt::format("last finished {}", last != nullptr ? describe(*last) : fmt::format("#{}", done));
    }
    const int peers = static_cast<int>(std::ranges::count_if(waits_, [&](const Wait& other) {
        return other.operation->p2p_seq == 0 && other.operation->seq == wait.operation->seq;
    }));
    text += fmt::format(", {} in {}", peers <= 1 ? fmt::format("rank {} waits", rank_of(wait.who)) : "peers wait",
                        what(wait));
    if (board == all.end()) return text;
    const RankBoard& who = *board->second;
    if (who.process == "stopped")
        text += fmt::format("; its process {} is stopped (a signal, a debugger): kill -CONT {}", who.pid, who.pid);
    else if (who.process != "running")
        text += fmt::format("; its process {} is {}", who.pid, who.process);
    if (!who.view.phase.empty()) text += fmt::format("; in phase '{}'", who.view.phase);
    return text;
}

std::vector<Finding> GroupCase::findings(const std::set<int>& waiting,
                                         const std::map<int, const RankBoard*>& all) const {
    std::vector<Finding> found;
    for (const Wait& wait : speakers_) {
        const std::size_t before = found.size();
        const nanoseconds waited = *wait.operation->started_ago;
        if (auto different = mismatch(wait)) found.push_back(*std::move(different));
        std::vector<int> free;     // they wait for nobody
        std::vector<int> unknown;  // they have not shown a board
        std::vector<int> stopped;
        for (const int rank : wait.for_ranks) {
            const auto board = all.find(rank);
            if (board != all.end() && board->second->ended) {
                found.push_back({StallKind::kDead, waited,
                                 fmt::format("DEAD rank {} (node {}, {}): peers wait in {}", rank, board->second->host,
                                             board->second->process, what(wait))});
            } else if (board == all.end() || !board->second->view.written) {
                unknown.push_back(rank);
            } else if (!waiting.contains(rank)) {
                free.push_back(rank);
            }
        }
        for (const auto& [rank, member] : members_) {
            if (member.board->process == "stopped") stopped.push_back(rank);
        }
        if (!free.empty()) {
            found.push_back({StallKind::kLagging, waited, lagging(wait, free, all)});
        } else if (!stopped.empty()) {
            found.push_back({StallKind::kLagging, waited, lagging(wait, stopped, all)});
        } else if (!unknown.empty()) {
            found.push_back({StallKind::kUnknown, waited,
                             fmt::format("WAITING for {}, which {} shown no board: peers wait in {}",
                                         name_ranks(unknown), unknown.size() == 1 ? "has" : "have", what(wait))});
        } else if (wait.for_ranks.empty()) {
            std::vector<int> inside;
            for (const Wait& other : waits_) inside.push_back(rank_of(other.who));
            found.push_back({StallKind::kAllPresent, waited,
                             fmt::format("ALL PRESENT but no progress: transport, or work that takes long ({} in {})",
                                         name_ranks(inside), what(wait))});
        } else {
            found.push_back({StallKind::kCircle, waited,
                             fmt::format("A CIRCLE: {} in {} for {}, which {} in another group",
                                         fmt::format("rank {} waits", rank_of(wait.who)), what(wait),
                                         name_ranks({wait.for_ranks.begin(), wait.for_ranks.end()}),
                                         wait.for_ranks.size() == 1 ? "waits" : "wait")});
        }
        for (std::size_t i = before; i < found.size(); ++i) {
            found[i].group = name_;
            found[i].seq = wait.operation->seq;
        }
    }
    return found;
}

/// Which says most about the cause.
int weight(StallKind kind) {
    switch (kind) {
        case StallKind::kDead: return 6;
        case StallKind::kMismatch: return 5;
        case StallKind::kLagging: return 4;
        case StallKind::kAllPresent: return 3;
        case StallKind::kUnknown: return 2;
        case StallKind::kCircle: return 1;
        case StallKind::kNone: break;
    }
    return 0;
}

}  // namespace

std::string name_ranks(const std::vector<int>& given) {
    const std::set<int> ranks(given.begin(), given.end());
    std::string text;
    std::size_t ranges = 0;
    for (auto at = ranks.begin(); at != ranks.end();) {
        const int first = *at;
        int last = first;
        while (++at != ranks.end() && *at == last + 1) ++last;
        if (++ranges > kMaxRanges) break;
        text += fmt::format("{}{}", ranges == 1 ? "" : ", ", first);
        if (last > first) text += fmt::format("-{}", last);
    }
    if (ranges > kMaxRanges) text += fmt::format(", … ({} in all)", ranks.size());
    return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", text);
}

StallVerdict judge(const std::vector<RankBoard>& boards, nanoseconds patience) {
    std::map<int, const RankBoard*> all;
    std::map<std::string, std::map<int, Member>> by_name;
    for (const RankBoard& board : boards) {
        all[number(board.rank)] = &board;
        for (std::size_t i = 0; i < board.view.groups.size(); ++i) {
            const BoardGroup& group = board.view.groups[i];
            if (group.live) by_name[group.name][number(board.rank)] = {&board, &group, static_cast<int>(i)};
        }
    }
    std::vector<GroupCase> cases;
    std::set<int> waiting;
    for (auto& [name, members] : by_name) {
        GroupCase& group = cases.emplace_back(name, std::move(members));
        group.look(patience);
        for (const Wait& wait : group.waits()) waiting.insert(rank_of(wait.who));
    }
    Finding best;
    for (const GroupCase& group : cases) {
        for (Finding& finding : group.findings(waiting, all)) {
            const auto key = [](const Finding& f) { return std::make_tuple(weight(f.kind), f.waited); };
            if (key(finding) > key(best)) best = std::move(finding);
        }
    }
    return {best.kind, std::move(best.text), std::move(best.group), best.seq};
}

}  // namespace ddprun::coordinator
