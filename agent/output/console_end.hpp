#pragma once
// How long a job's end waits for a console that takes nothing.

#include <string_view>

#include "agent/output/console.hpp"

namespace ddprun::agent {

/// Writes what is queued. Who reads slowly gets all of it if the job went well (exit code 0), as from any program. A
/// job that failed or was interrupted must end, though nobody reads any more, for a scheduler waits for that: then it
/// gives up when the console has taken nothing for a while, and says so. So it does when the last output could not be
/// written (a full disk): that changes no exit code. `tag` begins such a line.
void drain_at_end(Console& console, int exit_code, std::string_view tag);

}  // namespace ddprun::agent
