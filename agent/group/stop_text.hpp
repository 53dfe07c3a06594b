#pragma once
// Exit codes and sentences of worker_group::step() about a stop. Pure.

#include <string>

#include "agent/group/worker_group.hpp"
#include "common/error.hpp"

namespace ddprun::agent::worker_group {

/// Returns the exit code that a shell would have for a program that cannot be started, or that of a failure of ours
/// where this node has no process, descriptor or memory left, which is not the program's fault.
[[nodiscard]] int code_of_failed_start(const Error& error);

/// Returns the last line of a node that a signal ends.
[[nodiscard]] std::string describe_interruption(const State& state);

/// Returns a sentence to put behind the loss of the daemon, after which no verdict will come; empty: there were no
/// workers.
[[nodiscard]] std::string describe_fate_of_workers(const State& state);

}  // namespace ddprun::agent::worker_group
