#pragma once
// Chooses the exit codes and sentences of worker_group::step() about a stop. Pure.

#include <string>

#include "agent/group/worker_group.hpp"
#include "common/error.hpp"

namespace ddprun::agent::worker_group {

/// Returns the exit code that a shell has for a program that cannot be started. If the failure is this node's (no
/// process, descriptor or memory is left) or ours, returns exit_code::kInfrastructure or kInternal.
[[nodiscard]] int code_of_failed_start(const Error& error);

/// Returns the last line of a node that a signal ends.
[[nodiscard]] std::string describe_interruption(const State& state);

/// Returns the line about a stop by a signal that lasts: the workers, or processes, that it waits for, until when, and
/// what kills them now. `state.deadline` is set.
[[nodiscard]] std::string describe_stop_wait(const State& state, TimePoint now);

/// Returns a sentence about the workers to append to the loss of the daemon, after which no verdict follows; empty:
/// there were no workers.
[[nodiscard]] std::string describe_fate_of_workers(const State& state);

}  // namespace ddprun::agent::worker_group
