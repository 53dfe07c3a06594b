#include "agent/time_account.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "agent/job_history.hpp"
#include "agent/json_values.hpp"
#include "common/text/number.hpp"

namespace ddprun::agent {
namespace {

/// Spends a time, part by part, and the pauses in it on `waiting`.
class Spender {
public:
    Spender(TimePoint from, TimePoint to, const std::vector<Pause>& pauses) : at_(from), end_(to), pauses_(pauses) {}

    /// Spends the time up to `until` on a part. A time before what was spent already spends nothing.
    void spend(Duration TimeAccount::*part, TimePoint until) {
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
    const std::vector<Pause>& pauses_;  ///< they do not overlap
    TimeAccount account_;
};

}  // namespace

Duration wall_time(const TimeAccount& account) {
    Duration sum{};
    for (const TimePart& part : kTimeParts) sum += account.*part.part;
    return sum;
}

TimeAccount& operator+=(TimeAccount& sum, const TimeAccount& more) {
    for (const TimePart& part : kTimeParts) sum.*part.part += more.*part.part;
    return sum;
}

TimeAccount account_of(const GroupTimes& group, bool names_steps, TimePoint now) {
    const TimePoint end = group.ended_at.value_or(now);
    const TimePoint stop = group.stop_began_at.value_or(end);
    const TimePoint failed = stop - group.detected_after.value_or(Duration{});
    Spender time(group.waited_since, end, group.pauses);
    time.spend(&TimeAccount::rendezvous, group.assigned_at);
    time.spend(&TimeAccount::start, group.started_at.value_or(stop));
    if (names_steps) {
        time.spend(&TimeAccount::restore, std::min(group.steps.first_at.value_or(failed), failed));
        time.spend(&TimeAccount::recompute, std::min(group.steps.new_at.value_or(failed), failed));
    }
    time.spend(&TimeAccount::productive, failed);
    time.spend(&TimeAccount::detect, stop);
    time.spend(&TimeAccount::stop, end);
    return time.account();
}

TimeAccount account_of_wait(TimePoint from, TimePoint to, const std::vector<Pause>& pauses) {
    Spender time(from, to, pauses);
    time.spend(&TimeAccount::rendezvous, to);
    return time.account();
}

boost::json::object phases_json(const TimeAccount& account) {
    boost::json::object phases;
    for (const TimePart& part : kTimeParts)
        phases[fmt::format("{}_ms", part.name)] = milliseconds_json(account.*part.part);
    return phases;
}

void add_account(boost::json::object& object, const TimeAccount& account, bool names_steps) {
    object["phases"] = phases_json(account);
    object["wall_ms"] = milliseconds_json(wall_time(account));
    object["goodput"] = names_steps ? boost::json::value(std::round(goodput(account) * 1e4) / 1e4) : nullptr;
}

double goodput(const TimeAccount& account) {
    const Duration wall = wall_time(account);
    return wall > Duration{} ? std::chrono::duration<double>(account.productive) / wall : 0;
}

std::string goodput_text(const TimeAccount& account, bool names_steps) {
    const Duration wall = wall_time(account);
    std::vector<TimePart> parts;
    for (const TimePart& part : kTimeParts)  // what is below a thousandth would not explain anything
        if (part.part != &TimeAccount::productive && account.*part.part > wall / 1000) parts.push_back(part);
    std::ranges::stable_sort(parts, std::ranges::greater(), [&](const TimePart& part) { return account.*part.part; });
    std::vector<std::string> rest;
    for (const TimePart& part : parts)
        rest.push_back(fmt::format("{} {}", part.name, duration_text(account.*part.part)));
    return fmt::format("goodput: {:.0f} % of {} went into {}{}{}", 100 * goodput(account), duration_text(wall),
                       names_steps ? "new steps"
                                   : "the workers' run, restores and repeated steps included, as the program "
                                     "does not name its steps",
                       rest.empty() ? "" : "; the rest: ", fmt::join(rest, ", "));
}

}  // namespace ddprun::agent
