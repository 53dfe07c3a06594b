#pragma once
// Kills everything below this process where no fence does (docs/design/019), also processes that fork faster than they
// can be killed one by one. Allocates nothing, so that the guard may call it; the agent calls it, too. One thread.

#include <sys/types.h>

#include <array>
#include <cstddef>

#include "agent/guard/keeper.hpp"

namespace ddprun::agent {

/// Children of the guard that it must not kill.
struct Spared {
    /// Those that its process had before the agent: ddprund in a container, or what a shell has left to it by exec.
    std::array<pid_t, 64> older{};
    std::size_t older_count = 0;
    pid_t older_session = -1;   ///< in which no descendant of the agent can be; -1: none
    pid_t keeper = 0;           ///< of this node, which ends with the last process of its group; 0: none
    ProgramFile guard_program;  ///< whose keepers end by themselves (keeper.hpp), also those of other nodes

    /// Returns whether `pid` is in `older`, or in `older_session` as what an older child has left behind.
    [[nodiscard]] bool is_older(pid_t pid) const noexcept;
    [[nodiscard]] bool contains(pid_t pid) const noexcept;
    void add_older(pid_t pid) noexcept;
    /// Forgets a child that was reaped: its pid may pass to a process that must not be spared.
    void forget(pid_t pid) noexcept;
};

/// Stops every descendant of this process, repeats that until no other running one is found or half a second has
/// passed, and then sends SIGKILL to all. A stopped process cannot fork, and still counts against the limit of
/// processes, so a fork bomb comes to rest; killed one by one it would fill each place that is freed. A child in
/// `spared` is left alone with everything below it.
void freeze_and_kill_descendants(const Spared& spared) noexcept;

}  // namespace ddprun::agent
