#pragma once
// Formats lines of the daemon's log. Pure.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/coordinator/state.hpp"

namespace ddprun::daemon {

inline constexpr std::size_t kMaxLogLine = 2'000;

/// Returns one line for the log from foreign text: control characters (C0, DEL, C1 in UTF-8) become escapes such as
/// \x1b, and the text is cut after kMaxLogLine bytes.
[[nodiscard]] std::string printable(std::string_view text);

inline constexpr std::size_t kMaxTableNodes = 64;

/// Returns the newest worker group, a line for each of its first kMaxTableNodes nodes: "  node 0  n1  ranks 0-3".
[[nodiscard]] std::vector<std::string> group_table(const coordinator::State& state);

}  // namespace ddprun::daemon
