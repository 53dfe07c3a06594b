#pragma once
// What our programs say about themselves: one line each on stderr, "[ddprun] text". Workers' output never passes here.

#include <string>

namespace ddprun {

/// What to do when the reader of stderr does not read (a stopped terminal, `| less`).
enum class StuckReader {
    kWait,      ///< the line counts more than the time
    kDropLine,  ///< for programs that must never stand still; the next line that gets through says how many are missing
};

/// Sets up the default logger of spdlog: stderr, level from LOGLEVEL (default: info), lines tagged with `program`.
/// Call once, from main(), before any thread is started.
void init_logging(const std::string& program, StuckReader stuck = StuckReader::kWait);

}  // namespace ddprun
