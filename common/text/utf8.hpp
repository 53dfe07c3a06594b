#pragma once
// Turns bytes into valid UTF-8: for JSON, and for a terminal. Pure.

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun {

/// Returns the size in bytes of the well-formed UTF-8 character (RFC 3629) at the beginning of `text`; 0: there is
/// none.
[[nodiscard]] std::size_t character_bytes(std::string_view text);

/// Returns `text` with each byte that is not part of well-formed UTF-8 replaced by U+FFFD, cut to at most `max_bytes`
/// as by cut(). max_bytes >= 3.
[[nodiscard]] std::string clean_text(std::string_view text, std::size_t max_bytes);

/// Returns `bytes` as valid UTF-8 without control characters: ill-formed bytes become U+FFFD, terminal escape sequences
/// (colours) are dropped, other control characters become \xHH; newlines and tabs stay. Uses the
/// first `max_bytes` of the input, as far as they are whole characters; " …" marks a cut.
[[nodiscard]] std::string printable(std::string_view bytes, std::size_t max_bytes = std::string_view::npos);

}  // namespace ddprun
