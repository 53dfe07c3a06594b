#pragma once
// Makes bytes from workers fit for a message or a terminal. Pure.

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun::agent {

/// Returns `bytes` as valid UTF-8 without control characters: ill-formed bytes become U+FFFD, terminal escape sequences
/// (colours) are dropped, other control characters become \xHH; newlines and tabs stay. Uses at most `max_bytes` of the
/// input; " …" marks a cut.
[[nodiscard]] std::string printable(std::string_view bytes, std::size_t max_bytes);

}  // namespace ddprun::agent
