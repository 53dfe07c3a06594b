#include "agent/group_times.hpp"

#include <algorithm>

namespace ddprun::agent {
namespace {

/// Divides a time into parts, one after the other; the pauses in it are `waiting`.
class Division {
public:
    Division(TimePoint from, TimePoint to, const std::vector<Pause>& pauses) : at_(from), end_(to), pauses_(pauses) {}

    /// Adds the time up to `until` to a part. It adds nothing if `until` is in a part before.
    void add(Duration TimeAccount::*part, TimePoint until) {
        const TimePoint to = std::clamp(until, at_, std::max(at_, end_));
        Duration paused{};
        for (const Pause& pause : pauses_)
            paused += std::max(Duration{}, std::min(pause.to, to) - std::max(pause.from, at_));
        account_.waiting += paused;
        account_.*part += to - at_ - paused;
        at_ = to;
    }
    [[nodiscard]] const TimeAccount& account() const { return account_; }

private:
    TimePoint at_;
    TimePoint end_;
    const std::vector<Pause>& pauses_;
    TimeAccount account_;
};

}  // namespace

TimeAccount account_of(const GroupTimes& group, bool names_steps, TimePoint now) {
    const TimePoint end = group.ended_at.value_or(now);
    const TimePoint stop = group.stop_began_at.value_or(end);
    const TimePoint failed = stop - group.detected_after.value_or(Duration{});
    Division time(group.waited_since, end, group.pauses);
    time.add(&TimeAccount::rendezvous, group.assigned_at);
    time.add(&TimeAccount::start, group.started_at.value_or(stop));
    if (names_steps) {
        time.add(&TimeAccount::restore, std::min(group.steps.first_at.value_or(failed), failed));
        time.add(&TimeAccount::recompute, std::min(group.steps.new_at.value_or(failed), failed));
    }
    time.add(&TimeAccount::productive, failed);
    time.add(&TimeAccount::detect, stop);
    time.add(&TimeAccount::stop, end);
    return time.account();
}

TimeAccount account_of_wait(TimePoint from, TimePoint to, const std::vector<Pause>& pauses) {
    Division time(from, to, pauses);
    time.add(&TimeAccount::rendezvous, to);
    return time.account();
}

}  // namespace ddprun::agent
