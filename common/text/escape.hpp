#pragma once
// Text that others wrote, made fit for a terminal or a line of a log. Pure.

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun {

/// The bytes of the control character with which `text` begins; 0: it begins with none. Those of U+0080 … U+009F count,
/// for some terminals obey them.
[[nodiscard]] std::size_t control_length(std::string_view text);

/// `text` with every control character, newlines too, as \xHH: the number of its code point.
[[nodiscard]] std::string escape_controls(std::string_view text);

}  // namespace ddprun
