#include "agent/workers/signs_of_failure.hpp"

#include <algorithm>

namespace ddprun::agent {

std::optional<Duration> failing_for(const protocol::FlightRecord& record) {
    // An operation that was called later survived the sign even if its time is not later: see last_tick().
    const auto survived = [&](Duration ago, std::uint64_t after) {
        return std::ranges::any_of(record.operations, [&](const protocol::RecordedOperation& one) {
            return one.ended_ago && !one.failed && (one.id > after || *one.ended_ago < ago);
        });
    };
    std::optional<Duration> first;
    const auto add = [&](Duration ago, std::uint64_t after) {
        if (!survived(ago, after)) first = std::max(first.value_or(Duration::zero()), ago);
    };
    for (const auto& group : record.groups) {
        if (group.aborted_ago) add(*group.aborted_ago, group.aborted_after);
        if (group.left_ago && group.left_by_exception) add(*group.left_ago, group.left_after);
    }
    for (const protocol::RecordedOperation& one : record.operations) {
        if (is_arrival(one) && one.mismatch && one.ended_ago) add(*one.ended_ago, one.id);
    }
    return first;
}

bool has_left_all_groups(const protocol::FlightRecord& record) {
    const auto is_left = [](const protocol::RecordedGroup& group) {
        return group.left_ago && *group.left_ago <= kRecentSign;
    };
    return record.hidden_groups == 0 && std::ranges::any_of(record.groups, is_left) &&
           std::ranges::none_of(record.groups, [](const auto& group) { return group.live && !group.left_ago; });
}

}  // namespace ddprun::agent
