#pragma once
// Sets up the log: lines "[ddprun] text" on stderr. The workers' output does not pass through it (agent/output).

#include <string>

namespace ddprun {

/// The behaviour when the reader of stderr does not read (a stopped terminal, `| less`).
enum class StuckReader {
    kWait,      ///< wait until the line is written
    kDropLine,  ///< for a program that must never block; the next line that is written reports how many are missing
};

/// Sets up the default logger of spdlog: stderr, level from LOGLEVEL (default: info), lines tagged with `program`.
/// Call once, from main(), before any thread is started.
void init_logging(const std::string& program, StuckReader stuck = StuckReader::kWait);

}  // namespace ddprun
