#include "agent/workers/signs_of_failure.hpp"

#include <algorithm>

namespace ddprun::agent {

std::optional<Duration> failing_for(const protocol::FlightRecord& record) {
    Duration succeeded_ago = Duration::max();
    for (const protocol::RecordedOperation& one : record.operations) {
        if (one.ended_ago && !one.failed) succeeded_ago = std::min(succeeded_ago, Duration(*one.ended_ago));
    }
    std::optional<Duration> first;
    const auto add = [&](Duration ago) {
        if (ago <= succeeded_ago) first = std::max(first.value_or(Duration::zero()), ago);
    };
    for (const auto& group : record.groups) {
        if (group.aborted_ago) add(*group.aborted_ago);
        if (group.left_ago && group.left_by_exception) add(*group.left_ago);
    }
    for (const protocol::RecordedOperation& one : record.operations) {
        if (is_arrival(one) && one.mismatch && one.ended_ago) add(*one.ended_ago);
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
