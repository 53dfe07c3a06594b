#pragma once
// Whether a worker's SIGKILL was the kernel's, for memory had run out. The kernel counts such kills per control group,
// before it sends the signal, whether the limit was the group's own or the machine's.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.hpp"
#include "rendezvous/coordinator/messages.hpp"

namespace ddprun::agent {

/// Processes that were killed for want of memory, ever; empty: it cannot be read here.
struct OomCounts {
    std::optional<std::uint64_t> group;    ///< in the control group that was asked about, and below it
    std::optional<std::uint64_t> machine;  ///< anywhere, other containers included
    friend bool operator==(const OomCounts&, const OomCounts&) = default;
};

/// Of the control group of a process, whose /proc/PID/cgroup is `membership`: version 2, or the memory hierarchy of
/// version 1. `root` stands for "/".
[[nodiscard]] OomCounts read_oom_counts(const std::filesystem::path& root, std::string_view membership);

/// What the counts say about a process that was started in that group and killed in between. Pure.
[[nodiscard]] coordinator::OomKill judge_oom(const OomCounts& before, const OomCounts& after);

/// Of the workers of one node, which begin in this process's control group. Where one was moved to cannot be asked when
/// it has ended: version 1 forgets it.
class OomWatch {
public:
    /// A kill that was counted is news for so long, and for twice as long at most.
    static constexpr std::chrono::seconds kNews{30};

    explicit OomWatch(std::filesystem::path root = "/", std::chrono::nanoseconds news = kNews);
    /// A worker was killed by SIGKILL, or exited as a shell does whose program was. To be asked once of each, for each
    /// kill that the kernel has counted is of one process.
    [[nodiscard]] coordinator::OomKill one_was_killed();
    [[nodiscard]] std::chrono::nanoseconds news() const { return news_; }
    /// To be called every news(), or more often, for as long as workers run: kills of longer ago, of a data loader on
    /// the first day, say little about one of today. They make it kMaybe, once each.
    void forget_old_kills(TimePoint now);

private:
    std::filesystem::path root_;
    std::chrono::nanoseconds news_;
    std::string membership_;
    OomCounts at_start_;  ///< what was known then, and the kills since of which we have told
    OomCounts before_;    ///< what is known of all kills that are no news
    OomCounts latest_;    ///< what was read at `looked_at_`
    TimePoint looked_at_{};
};

}  // namespace ddprun::agent
