#include "rendezvous/diagnosis/death.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "common/text/words.hpp"
#include "rendezvous/diagnosis/cause.hpp"
#include "rendezvous/diagnosis/stall_text.hpp"

namespace ddprun::diagnosis {
namespace {

using std::chrono::nanoseconds;

const RecordedGroup* group_of(const FlightRecord& view, const RecordedOperation& operation) {
    const auto index = static_cast<std::size_t>(operation.group);
    return operation.group >= 0 && index < view.groups.size() ? &view.groups[index] : nullptr;
}

/// Returns whether no operation is in progress, and the one that ended last has failed.
bool failed_of_an_operation(const FlightRecord& view) {
    if (current_operation(view) != nullptr) return false;
    const RecordedOperation* const last = ended_last(view);
    return last != nullptr && last->failed;
}

/// Waiters: collects the ranks that waited for a worker when it ended. diagnose_death() adds one record after the
/// other.
class Waiters {
public:
    Waiters(int dead, const RankRecord* record) : dead_(dead), record_(record) {
        ended_ago_ = record != nullptr ? record->ended_ago.value_or(nanoseconds(0)) : nanoseconds::max() - kSameMoment;
    }

    void add(const RankRecord& peer) {
        for (const RecordedOperation& operation : peer.view.operations) {  // the oldest first
            const RecordedGroup* const group = group_of(peer.view, operation);
            if (group == nullptr || !waited(operation) || !needs_the_dead(operation, *group)) continue;
            const std::uint64_t own = operation.p2p_seq != 0 ? static_cast<std::uint64_t>(number(peer.rank)) + 1 : 0;
            Wait& wait = waits_[{group->name, operation.seq, operation.p2p_seq, own}];
            wait.operation = &operation;
            wait.group = group;
            wait.ranks.push_back(number(peer.rank));
            return;
        }
    }

    /// Returns "ranks 0-2 (node a) waited for it in #183 …"; empty: no rank did.
    [[nodiscard]] std::string describe_all(const RecordsByRank& all) const {
        if (waits_.empty()) return "";
        const auto largest =
            std::ranges::max_element(waits_, {}, [](const auto& entry) { return entry.second.ranks.size(); });
        const Wait& wait = largest->second;
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
        const RecordedOperation* operation = nullptr;
        const RecordedGroup* group = nullptr;
        std::vector<int> ranks;
    };

    /// Returns whether the rank waited for the operation when the worker ended: it is still in progress, or failed
    /// since.
    [[nodiscard]] bool waited(const RecordedOperation& operation) const {
        if (!operation.waited_ago) return false;
        return !operation.ended_ago || (operation.failed && *operation.ended_ago <= ended_ago_ + kSameMoment);
    }

    [[nodiscard]] bool needs_the_dead(const RecordedOperation& operation, const RecordedGroup& group) const {
        if (operation.p2p_seq != 0) return operation.peer >= 0 && world_rank(group, operation.peer) == dead_;
        if (!has_member(group, dead_)) return false;
        const RecordedGroup* const own = same_group(group);
        return own == nullptr || own->done < operation.seq;
    }

    [[nodiscard]] const RecordedGroup* same_group(const RecordedGroup& group) const {
        if (record_ == nullptr) return nullptr;
        const auto& groups = record_->view.groups;
        const auto found = std::ranges::find(groups, group.name, &RecordedGroup::name);
        return found == groups.end() ? nullptr : &*found;
    }

    /// Returns whether the worker was in the same operation; then the line names it already.
    [[nodiscard]] bool is_in(const Wait& wait) const {
        const RecordedOperation* const own = record_ != nullptr ? current_operation(record_->view) : nullptr;
        if (own == nullptr || own->p2p_seq != 0 || wait.operation->p2p_seq != 0) return false;
        const RecordedGroup* const group = group_of(record_->view, *own);
        return group != nullptr && group->name == wait.group->name && own->seq == wait.operation->seq;
    }

    int dead_;
    const RankRecord* record_;
    nanoseconds ended_ago_{0};
    /// The waits by group and numbers; sends and receives also by rank, because each rank counts its own.
    std::map<std::tuple<std::string, std::uint64_t, std::uint64_t, std::uint64_t>, Wait> waits_;
};

}  // namespace

bool has_diagnosis(const FailureReport& failure) {
    return failure.pid != 0 && !failure.activity.empty() && (is_violent(failure.status) || !lost_a_peer(failure));
}

const RecordedOperation* ended_last(const FlightRecord& view) {
    const RecordedOperation* last = nullptr;
    for (const RecordedOperation& operation : view.operations) {
        if (is_arrival(operation)) continue;
        if (operation.ended_ago && (last == nullptr || *operation.ended_ago < *last->ended_ago)) last = &operation;
    }
    return last;
}

DeathVerdict diagnose_death(const std::vector<RankRecord>& records, const FailureReport& dead) {
    if (!has_diagnosis(dead)) return {};
    RecordsByRank all;
    for (const RankRecord& record : records) all[number(record.rank)] = &record;
    const auto own = all.find(number(dead.rank));
    const RankRecord* const record = own != all.end() && own->second->view.written ? own->second : nullptr;
    if (!is_violent(dead.status) && record != nullptr && failed_of_an_operation(record->view)) return {};

    Waiters waiters(number(dead.rank), record);
    bool all_shown = true;
    for (const auto& [rank, peer] : all) {
        if (rank == number(dead.rank)) continue;
        all_shown = all_shown && peer->view.written;
        waiters.add(*peer);
    }
    const std::string waiting = waiters.describe_all(all);
    const bool no_rank_waited = waiting.empty() && all_shown && all.size() > 1;
    if (no_rank_waited && !is_violent(dead.status)) return {};  // its end has nothing to do with an operation

    DeathVerdict verdict;
    verdict.detail = dead.activity;
    if (!waiting.empty())
        verdict.detail += "; " + waiting;
    else if (no_rank_waited)
        verdict.detail += "; no rank waited for it";
    verdict.text = fmt::format("DEAD rank {} ({}, {}): {}", number(dead.rank), name_node(dead.host),
                               end_participle(dead), verdict.detail);
    return verdict;
}

}  // namespace ddprun::diagnosis
