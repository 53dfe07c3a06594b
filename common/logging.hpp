#pragma once
// Sets up the log: lines "[ddprun] text" on stderr, after the time of day where that is wanted. The workers' output
// does not pass through it (agent/output).

#include <string>

namespace ddprun {

/// The behaviour when the reader of stderr does not read (a stopped terminal, `| less`).
enum class StuckReader {
    kWait,      ///< wait until the line is written
    kDropLine,  ///< for a program that must never block; the next line that is written reports how many are missing
};

/// The beginning of log lines.
enum class LineStart {
    kTag,         ///< "[ddprun] "
    kTimeAndTag,  ///< "2026-03-01T12:00:03.042+01:00 [ddprun] ": for files, which are read hours later
};

/// Returns spdlog's pattern for `start`, with which a line's text is to follow.
[[nodiscard]] constexpr const char* log_pattern(LineStart start) {
    return start == LineStart::kTag ? "[%n] " : "%Y-%m-%dT%H:%M:%S.%e%z [%n] ";
}

/// Sets up the default logger of spdlog: stderr, level from LOGLEVEL (default: info), lines tagged with `program`.
/// Call once, from main(), before any thread is started.
void init_logging(const std::string& program, LineStart start, StuckReader stuck = StuckReader::kWait);

}  // namespace ddprun
