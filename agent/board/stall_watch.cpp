#include "agent/board/stall_watch.hpp"

#include <algorithm>
#include <utility>

namespace ddprun::agent {

std::chrono::nanoseconds StallWatch::interval() const {
    using namespace std::chrono_literals;
    return std::clamp<std::chrono::nanoseconds>(warning_ / 4, 50ms, 1s);
}

bool StallWatch::is_stuck(const coordinator::BoardOperation& operation, bool going_on) const {
    return is_on() && operation.started_ago && !operation.ended_ago && *operation.started_ago >= warning_ &&
           !(going_on && operation.p2p_seq != 0);
}

std::optional<coordinator::Stalled> StallWatch::look(Rank rank, const coordinator::BoardView& view) const {
    const auto told = told_.find(rank);
    const bool going_on = is_going_on(view, warning_);
    const coordinator::BoardOperation* oldest = nullptr;
    for (const coordinator::BoardOperation& operation : view.operations) {
        if (!is_stuck(operation, going_on) || (told != told_.end() && told->second.contains(operation.id))) continue;
        if (oldest == nullptr || *operation.started_ago > *oldest->started_ago) oldest = &operation;
    }
    if (oldest == nullptr) return std::nullopt;
    coordinator::Stalled report;
    report.rank = rank;
    if (const auto index = static_cast<std::size_t>(oldest->group); oldest->group >= 0 && index < view.groups.size())
        report.group = view.groups[index].name;
    report.seq = oldest->seq;
    report.p2p_seq = oldest->p2p_seq;
    report.waited = std::chrono::duration_cast<std::chrono::milliseconds>(*oldest->started_ago);
    return report;
}

void StallWatch::told(Rank rank, const coordinator::BoardView& view) {
    const bool going_on = is_going_on(view, warning_);
    std::set<std::uint64_t> known;  // and what is no longer on the board is forgotten
    for (const coordinator::BoardOperation& operation : view.operations) {
        if (is_stuck(operation, going_on)) known.insert(operation.id);
    }
    told_[rank] = std::move(known);
}

}  // namespace ddprun::agent
