#pragma once
// Writes the last output of a job to the console, and limits how long that takes. Called by Agent.

#include <string_view>

#include "agent/output/console.hpp"

namespace ddprun::agent {

/// Writes the console's queue. After a success (exit code 0) it waits for a slow reader as long as that takes, as any
/// program does. After a failure or an interruption it gives up when the console has taken nothing for a while, and
/// prints a warning: a scheduler waits for the end of the job. Output that could not be written (a full disk) causes a
/// warning too, and changes no exit code. `tag` begins the warnings.
void drain_at_end(Console& console, int exit_code, std::string_view tag);

}  // namespace ddprun::agent
