#pragma once
// Finds out whether the kernel's out-of-memory killer sent a worker its SIGKILL. The kernel counts such kills per
// control group, before it sends the signal, whether the limit is the group's own or the machine's.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

/// The numbers of processes that the kernel has killed for lack of memory; empty: unreadable here.
struct OomCounts {
    std::optional<std::uint64_t> group;    ///< in one control group and the groups below it
    std::optional<std::uint64_t> machine;  ///< anywhere, other containers included
    friend bool operator==(const OomCounts&, const OomCounts&) = default;
};

/// Reads the counts for the control group of a process, whose /proc/PID/cgroup is `membership`: version 2, or the
/// memory hierarchy of version 1. `root` stands for "/".
[[nodiscard]] OomCounts read_oom_counts(const std::filesystem::path& root, std::string_view membership);

/// Classifies the end of a process that was started in that group and killed between the two counts. Pure.
[[nodiscard]] protocol::OomKill classify_oom(const OomCounts& before, const OomCounts& after);

/// OomWatch: classifies the kills of one node's workers, which start in this process's control group. Owned by
/// WorkerProcesses. Limit: version 1 forgets the group of an ended worker, so one that was moved cannot be looked up.
class OomWatch {
public:
    /// A counted kill is recent for at least this long, and for at most twice as long.
    static constexpr std::chrono::seconds kRecentPeriod{30};

    explicit OomWatch(std::filesystem::path root = "/", std::chrono::nanoseconds recent_period = kRecentPeriod);
    /// Returns whether the kernel killed a worker that ended by SIGKILL, or that exited as a shell whose program did.
    /// Call once per worker: each kill that the kernel has counted is of one process.
    [[nodiscard]] protocol::OomKill classify_kill();
    [[nodiscard]] std::chrono::nanoseconds recent_period() const { return recent_period_; }
    /// Makes older kills count as kMaybe, once each: a kill of a data loader on the first day says little about a
    /// worker that is killed today. Call every recent_period(), or more often, while workers run.
    void forget_old_kills(TimePoint now);

private:
    std::filesystem::path root_;
    std::chrono::nanoseconds recent_period_;
    std::string membership_;
    OomCounts at_start_;  ///< at the start, plus the kills since then that were attributed to a worker
    OomCounts before_;    ///< all kills that are not recent
    OomCounts latest_;    ///< as of `looked_at_`
    TimePoint looked_at_{};
};

}  // namespace ddprun::agent
