#include "agent/recorder/stall_detector.hpp"

#include <algorithm>
#include <utility>

namespace ddprun::agent {

std::chrono::nanoseconds StallDetector::interval() const {
    using namespace std::chrono_literals;
    // Looks also when warnings are off: a program may catch the error of a deadline, and nothing else reports that.
    return is_on() ? std::clamp<std::chrono::nanoseconds>(warning_ / 4, 50ms, 1s) : 1s;
}

std::optional<std::chrono::nanoseconds> StallDetector::stuck_for(const protocol::RecordedOperation& operation,
                                                                 bool going_on) const {
    if (operation.timed_out && operation.ended_ago)
        return *operation.ended_ago < protocol::kRecentTimeout
                   ? std::optional(operation.started_ago.value_or(operation.queued_ago) - *operation.ended_ago)
                   : std::nullopt;
    const auto waited = waits_for(operation, going_on);
    return is_on() && waited && *waited >= warning_ ? waited : std::nullopt;
}

/// Returns how long the rank has been in the operation, if its entry shows another rank whose host does not answer.
std::optional<std::chrono::nanoseconds> StallDetector::cut_off_for(const protocol::RecordedOperation& operation,
                                                                   bool going_on) {
    if (operation.unreachable < 0 || operation.ended_ago) return std::nullopt;
    return waits_for(operation, going_on).value_or(operation.queued_ago);
}

std::optional<protocol::Stalled> StallDetector::look(Rank rank, const protocol::FlightRecord& view) const {
    const auto reported = reported_.find(rank);
    const bool going_on = is_going_on(view, warning_);
    const protocol::RecordedOperation* oldest = nullptr;
    std::chrono::nanoseconds longest{0};
    bool by_host = false;
    const auto consider = [&](const protocol::RecordedOperation& operation, const auto& stuck, bool host) {
        if (!stuck || (reported != reported_.end() && reported->second.contains({operation.id, host}))) return;
        const auto key = [](const protocol::RecordedOperation& o, std::chrono::nanoseconds time) {
            return std::pair(o.timed_out, time);
        };
        if (oldest != nullptr && key(operation, *stuck) <= key(*oldest, longest)) return;
        oldest = &operation;
        longest = *stuck;
        by_host = host;
    };
    for (const protocol::RecordedOperation& operation : view.operations) {
        consider(operation, stuck_for(operation, going_on), false);
        consider(operation, cut_off_for(operation, going_on), true);
    }
    if (oldest == nullptr) return std::nullopt;
    protocol::Stalled report;
    report.rank = rank;
    if (const auto index = static_cast<std::size_t>(oldest->group); oldest->group >= 0 && index < view.groups.size())
        report.group = view.groups[index].name;
    report.seq = oldest->seq;
    report.p2p_seq = oldest->p2p_seq;
    report.waited = std::chrono::duration_cast<std::chrono::milliseconds>(longest);
    report.timed_out = oldest->timed_out;
    report.unreachable = by_host;
    return report;
}

void StallDetector::set_reported(Rank rank, const protocol::FlightRecord& view) {
    const bool going_on = is_going_on(view, warning_);
    std::set<Reported> known;  // operations that left the flight record are forgotten
    for (const protocol::RecordedOperation& operation : view.operations) {
        if (stuck_for(operation, going_on)) known.emplace(operation.id, false);
        if (cut_off_for(operation, going_on)) known.emplace(operation.id, true);
    }
    reported_[rank] = std::move(known);
}

}  // namespace ddprun::agent
