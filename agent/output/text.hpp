#pragma once
// Bytes from workers as text that is fit for a message or a terminal. Pure.

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun::agent {

/// `bytes` as valid UTF-8 without control characters: ill-formed bytes become U+FFFD, terminal escape sequences
/// (colours) are dropped, other control characters are written as \xHH. Newlines and tabs stay. At most `max_bytes` of
/// input are taken; what is cut off is marked by " …".
[[nodiscard]] std::string printable(std::string_view bytes, std::size_t max_bytes);

}  // namespace ddprun::agent
