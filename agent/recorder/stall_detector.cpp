#include "agent/board/stall_watch.hpp"

#include <algorithm>
#include <utility>

namespace ddprun::agent {

std::chrono::nanoseconds StallWatch::interval() const {
    using namespace std::chrono_literals;
    // Also when it is off: a program may catch the error of a deadline, and nobody else would tell of that.
    return is_on() ? std::clamp<std::chrono::nanoseconds>(warning_ / 4, 50ms, 1s) : 1s;
}

std::optional<std::chrono::nanoseconds> StallWatch::stuck_for(const coordinator::BoardOperation& operation,
                                                              bool going_on) const {
    if (operation.timed_out && operation.ended_ago)
        return *operation.ended_ago < coordinator::kRecentTimeout
                   ? std::optional(operation.started_ago.value_or(operation.queued_ago) - *operation.ended_ago)
                   : std::nullopt;
    const auto waited = waits_for(operation, going_on);
    return is_on() && waited && *waited >= warning_ ? waited : std::nullopt;
}

std::optional<coordinator::Stalled> StallWatch::look(Rank rank, const coordinator::BoardView& view) const {
    const auto told = told_.find(rank);
    const bool going_on = is_going_on(view, warning_);
    const coordinator::BoardOperation* oldest = nullptr;
    std::chrono::nanoseconds longest{0};
    for (const coordinator::BoardOperation& operation : view.operations) {
        const auto stuck = stuck_for(operation, going_on);
        if (!stuck || (told != told_.end() && told->second.contains(operation.id))) continue;
        const auto key = [](const coordinator::BoardOperation& o, std::chrono::nanoseconds time) {
            return std::pair(o.timed_out, time);
        };
        if (oldest != nullptr && key(operation, *stuck) <= key(*oldest, longest)) continue;
        oldest = &operation;
        longest = *stuck;
    }
    if (oldest == nullptr) return std::nullopt;
    coordinator::Stalled report;
    report.rank = rank;
    if (const auto index = static_cast<std::size_t>(oldest->group); oldest->group >= 0 && index < view.groups.size())
        report.group = view.groups[index].name;
    report.seq = oldest->seq;
    report.p2p_seq = oldest->p2p_seq;
    report.waited = std::chrono::duration_cast<std::chrono::milliseconds>(longest);
    report.timed_out = oldest->timed_out;
    return report;
}

void StallWatch::told(Rank rank, const coordinator::BoardView& view) {
    const bool going_on = is_going_on(view, warning_);
    std::set<std::uint64_t> known;  // and what is no longer on the board is forgotten
    for (const coordinator::BoardOperation& operation : view.operations) {
        if (stuck_for(operation, going_on)) known.insert(operation.id);
    }
    told_[rank] = std::move(known);
}

}  // namespace ddprun::agent
