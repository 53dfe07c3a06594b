#include "agent/time_account.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "common/text/number.hpp"

namespace ddprun::agent {

Duration wall_time(const TimeAccount& account) {
    Duration sum{};
    for (const TimePart& part : kTimeParts) sum += account.*part.part;
    return sum;
}

TimeAccount& operator+=(TimeAccount& sum, const TimeAccount& more) {
    for (const TimePart& part : kTimeParts) sum.*part.part += more.*part.part;
    return sum;
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
    const double share = 100 * goodput(account);
    const std::string percent =
        share > 99 && share < 100 ? fmt::format("{:.1f}", std::min(share, 99.9)) : fmt::format("{:.0f}", share);
    const std::string of = fmt::format("{} % of {}", percent, duration_text(wall));
    const std::string others = rest.empty() ? "" : fmt::format("; the rest: {}", fmt::join(rest, ", "));
    if (names_steps) return fmt::format("goodput: {} went into new steps{}", of, others);
    return fmt::format(
        "time: workers ran for {}{}; how much of that went into new steps is known if the program names "
        "them (ddp::set_step() or DDPRUN_STEP_FILE)",
        of, others);
}

}  // namespace ddprun::agent
