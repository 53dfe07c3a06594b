#pragma once
// Makes foreign text safe for a terminal and for one line of a log. Pure.

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun {

/// Returns the size in bytes of the control character at the beginning of `text`; 0: there is none. U+0080 to U+009F
/// count as well, because some terminals obey them.
[[nodiscard]] std::size_t control_length(std::string_view text);

/// Returns `text` without the sequences that colour it, move the cursor or name a window (ECMA-48: CSI, OSC and the
/// short ones). An unfinished one is left out, too.
[[nodiscard]] std::string without_sequences(std::string_view text);

/// Returns `text` with every control character, newlines too, as \xHH with its code point.
[[nodiscard]] std::string escape_controls(std::string_view text);

/// Returns the same for one line of a log, cut to `max_bytes` as by cut().
[[nodiscard]] std::string log_line(std::string_view text, std::size_t max_bytes = 2'000);

}  // namespace ddprun
