#pragma once
// What our programs say about themselves: one line each on stderr, "[ddprun] text". Workers' output never passes here.

#include <string>

namespace ddprun {

/// Sets up the default logger of spdlog: stderr, level from LOGLEVEL (default: info), lines tagged with `program`.
/// Call once, from main(), before any thread is started.
void init_logging(const std::string& program);

}  // namespace ddprun
