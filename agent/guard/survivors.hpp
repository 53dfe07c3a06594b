#pragma once
// Reports processes that survive SIGKILL, without allocation. Used by the guard and its keeper.

#include <sys/types.h>

#include <ctime>
#include <span>

#include "common/clock.hpp"

namespace ddprun::agent {

/// The time that SIGKILL may take: a process that waits in the kernel (state D) survives it.
inline constexpr long kUnkillableSeconds = 60;

/// Returns the pause between two kills, `passed` after the first: short at first, and up to a second for processes that
/// take long to end, so that their end is not slowed down.
[[nodiscard]] timespec kill_interval(Duration passed) noexcept;

/// Prints a line for each of the first processes in `pids`, with name, state and the function of the kernel in which
/// it waits. `printer` begins the lines.
void report_survivors(const char* printer, std::span<const pid_t> pids) noexcept;

}  // namespace ddprun::agent
