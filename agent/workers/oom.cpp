#include "agent/workers/oom.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include "common/system/files.hpp"

namespace ddprun::agent {
namespace {

using protocol::OomKill;

/// Removes the first line from `text` and returns it.
std::string_view next_line(std::string_view& text) {
    const auto end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return line;
}

/// Returns the number behind "oom_kill " in lines of a name and a number each.
std::optional<std::uint64_t> oom_kills(std::string_view text) {
    constexpr std::string_view kName = "oom_kill ";
    while (!text.empty()) {
        const std::string_view line = next_line(text);
        if (!line.starts_with(kName)) continue;
        const std::string_view digits = line.substr(kName.size());
        std::uint64_t count = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
        if (error == std::errc()) return count;
    }
    return std::nullopt;
}

/// A line of /proc/PID/cgroup: "0::/path" (version 2), "4:memory:/path", "3:cpu,cpuacct:/path".
struct Membership {
    std::string_view controllers;
    std::string_view path;
};

Membership parse(std::string_view line) {
    const auto first = line.find(':');
    const auto second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) return {"?", ""};
    return {line.substr(first + 1, second - first - 1), line.substr(second + 1)};
}

bool has_memory(std::string_view controllers) {
    while (!controllers.empty()) {
        const auto comma = controllers.find(',');
        if (controllers.substr(0, comma) == "memory") return true;
        controllers.remove_prefix(comma == std::string_view::npos ? controllers.size() : comma + 1);
    }
    return false;
}

std::optional<std::uint64_t> group_kills(const std::filesystem::path& root, std::string_view membership) {
    const std::filesystem::path mount = root / "sys/fs/cgroup";
    while (!membership.empty()) {
        const Membership entry = parse(next_line(membership));
        const bool unified = entry.controllers.empty();
        if (!unified && !has_memory(entry.controllers)) continue;
        const std::filesystem::path below = std::filesystem::path(entry.path).relative_path();
        const std::filesystem::path folder = unified ? mount / below : mount / "memory" / below;
        if (const auto kills = oom_kills(content_of(folder / (unified ? "memory.events" : "memory.oom_control"))))
            return kills;
    }
    return std::nullopt;
}

}  // namespace

OomCounts read_oom_counts(const std::filesystem::path& root, std::string_view membership) {
    return {group_kills(root, membership), oom_kills(content_of(root / "proc/vmstat"))};
}

namespace {

bool rose(const std::optional<std::uint64_t>& before, const std::optional<std::uint64_t>& after) {
    return before && after && *after > *before;
}

void count(std::optional<std::uint64_t>& kills) {
    if (kills) ++*kills;
}

}  // namespace

OomKill classify_oom(const OomCounts& before, const OomCounts& after) {
    const auto both = [](const auto& first, const auto& second) { return first.has_value() && second.has_value(); };
    if (rose(before.group, after.group)) return OomKill::kYes;
    if (rose(before.machine, after.machine)) return OomKill::kMaybe;  // it may have been moved to another group
    return both(before.group, after.group) || both(before.machine, after.machine) ? OomKill::kNo : OomKill::kUnknown;
}

OomWatch::OomWatch(std::filesystem::path root, std::chrono::nanoseconds recent_period)
    : root_(std::move(root)),
      recent_period_(recent_period),
      membership_(content_of(root_ / "proc/self/cgroup")),
      at_start_(read_oom_counts(root_, membership_)),
      before_(at_start_),
      latest_(at_start_) {}

OomKill OomWatch::classify_kill() {
    const OomCounts now = read_oom_counts(root_, membership_);
    const OomKill recent = classify_oom(before_, now);
    const bool long_ago =
        recent == OomKill::kNo && (now.group ? rose(at_start_.group, now.group) : rose(at_start_.machine, now.machine));
    if (recent == OomKill::kYes) count(before_.group);
    if (recent != OomKill::kNo) count(before_.machine);
    if (recent == OomKill::kYes || long_ago) count(at_start_.group);
    if (recent != OomKill::kNo || long_ago) count(at_start_.machine);
    latest_.group = std::max(latest_.group, before_.group);
    latest_.machine = std::max(latest_.machine, before_.machine);
    return long_ago ? OomKill::kMaybe : recent;
}

/// The kernel counts a kill before the victim's end is reported, which comes when all its memory is reclaimed: seconds
/// later for tens of gigabytes, or where a GPU's driver has to release it.
void OomWatch::forget_old_kills(TimePoint now) {
    if (now - looked_at_ < recent_period_) return;
    looked_at_ = now;
    before_ = std::exchange(latest_, read_oom_counts(root_, membership_));
}

}  // namespace ddprun::agent
