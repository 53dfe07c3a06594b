#include "rendezvous/coordinator/stall_death.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "rendezvous/coordinator/blame.hpp"
#include "rendezvous/coordinator/stall_words.hpp"

namespace ddprun::coordinator {
namespace {

using std::chrono::nanoseconds;

/// Boards of several hosts are not read at one moment.
constexpr nanoseconds kSameMoment = std::chrono::seconds(1);

const BoardGroup* group_of(const BoardView& view, const BoardOperation& operation) {
    const auto index = static_cast<std::size_t>(operation.group);
    return operation.group >= 0 && index < view.groups.size() ? &view.groups[index] : nullptr;
}

/// The last thing that it did was to see an operation fail.
bool failed_of_an_operation(const BoardView& view) {
    if (in_hand(view) != nullptr) return false;
    const BoardOperation* const last = ended_last(view);
    return last != nullptr && last->failed;
}

class Waiters {
public:
    Waiters(int dead, const RankBoard* board) : dead_(dead), board_(board) {
        ended_ago_ = board != nullptr ? board->ended_ago.value_or(nanoseconds(0)) : nanoseconds::max() - kSameMoment;
    }

    void look_at(const RankBoard& peer) {
        for (const BoardOperation& operation : peer.view.operations) {  // the oldest first
            const BoardGroup* const group = group_of(peer.view, operation);
            if (group == nullptr || !waited(operation) || !needs_the_dead(operation, *group)) continue;
            const std::uint64_t own = operation.p2p_seq != 0 ? static_cast<std::uint64_t>(number(peer.rank)) + 1 : 0;
            Wait& wait = waits_[{group->name, operation.seq, operation.p2p_seq, own}];
            wait.operation = &operation;
            wait.group = group;
            wait.ranks.push_back(number(peer.rank));
            return;
        }
    }

    /// "ranks 0-2 (node a) waited for it in #183 …"; empty: nobody did.
    [[nodiscard]] std::string words(const BoardsByRank& all) const {
        if (waits_.empty()) return "";
        const auto most =
            std::ranges::max_element(waits_, {}, [](const auto& entry) { return entry.second.ranks.size(); });
        const Wait& wait = most->second;
        std::string text = fmt::format("{} waited for it ", name_ranks(wait.ranks, all));
        text += is_in(wait) ? "there" : fmt::format("in {} of group '{}'", describe(*wait.operation), wait.group->name);
        std::vector<int> others;
        for (const auto& [key, other] : waits_) {
            if (&other != &wait) others.insert(others.end(), other.ranks.begin(), other.ranks.end());
        }
        if (!others.empty()) text += fmt::format(", {} elsewhere", name_ranks(others, all));
        return text;
    }

private:
    struct Wait {
        const BoardOperation* operation = nullptr;
        const BoardGroup* group = nullptr;
        std::vector<int> ranks;
    };

    /// It was waited for when the dead one ended: it is still in hand, or has failed since.
    [[nodiscard]] bool waited(const BoardOperation& operation) const {
        if (!operation.waited_ago) return false;
        return !operation.ended_ago || (operation.failed && *operation.ended_ago <= ended_ago_ + kSameMoment);
    }

    [[nodiscard]] bool needs_the_dead(const BoardOperation& operation, const BoardGroup& group) const {
        if (operation.p2p_seq != 0) return operation.peer >= 0 && world_rank(group, operation.peer) == dead_;
        if (!has_member(group, dead_)) return false;
        const BoardGroup* const own = same_group(group);
        return own == nullptr || own->done < operation.seq;
    }

    [[nodiscard]] const BoardGroup* same_group(const BoardGroup& group) const {
        if (board_ == nullptr) return nullptr;
        const auto& groups = board_->view.groups;
        const auto found = std::ranges::find(groups, group.name, &BoardGroup::name);
        return found == groups.end() ? nullptr : &*found;
    }

    /// Whether that is what the dead one was in, too; then it stands in the line already.
    [[nodiscard]] bool is_in(const Wait& wait) const {
        const BoardOperation* const own = board_ != nullptr ? in_hand(board_->view) : nullptr;
        if (own == nullptr || own->p2p_seq != 0 || wait.operation->p2p_seq != 0) return false;
        const BoardGroup* const group = group_of(board_->view, *own);
        return group != nullptr && group->name == wait.group->name && own->seq == wait.operation->seq;
    }

    int dead_;
    const RankBoard* board_;
    nanoseconds ended_ago_{0};
    /// By group and numbers; sends and receives also by rank, for each counts its own.
    std::map<std::tuple<std::string, std::uint64_t, std::uint64_t, std::uint64_t>, Wait> waits_;
};

}  // namespace

bool may_be_judged(const FailureReport& failure) {
    return failure.pid != 0 && !failure.activity.empty() && (is_violent(failure.status) || !lost_a_peer(failure));
}

const BoardOperation* ended_last(const BoardView& view) {
    const BoardOperation* last = nullptr;
    for (const BoardOperation& operation : view.operations) {
        if (is_arrival(operation)) continue;
        if (operation.ended_ago && (last == nullptr || *operation.ended_ago < *last->ended_ago)) last = &operation;
    }
    return last;
}

DeathVerdict judge_death(const std::vector<RankBoard>& boards, const FailureReport& dead) {
    if (!may_be_judged(dead)) return {};
    BoardsByRank all;
    for (const RankBoard& board : boards) all[number(board.rank)] = &board;
    const auto own = all.find(number(dead.rank));
    const RankBoard* const board = own != all.end() && own->second->view.written ? own->second : nullptr;
    if (!is_violent(dead.status) && board != nullptr && failed_of_an_operation(board->view)) return {};

    Waiters waiters(number(dead.rank), board);
    bool all_shown = true;
    for (const auto& [rank, peer] : all) {
        if (rank == number(dead.rank)) continue;
        all_shown = all_shown && peer->view.written;
        waiters.look_at(*peer);
    }
    DeathVerdict verdict;
    verdict.detail = dead.activity;
    if (const std::string words = waiters.words(all); !words.empty())
        verdict.detail += "; " + words;
    else if (all_shown && all.size() > 1)
        verdict.detail += "; nobody waited for it";
    std::string how = describe_end(dead);
    if (how.starts_with("was ")) how.erase(0, 4);
    verdict.text = fmt::format("DEAD rank {} (node {}, {}): {}", number(dead.rank), dead.host, how, verdict.detail);
    return verdict;
}

}  // namespace ddprun::coordinator
