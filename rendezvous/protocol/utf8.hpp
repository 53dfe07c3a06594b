#pragma once
// Text that a JSON document may carry. Pure.

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun::protocol {

/// Returns `text` with each byte that is not part of well-formed UTF-8 (RFC 3629) replaced by U+FFFD, cut at a
/// character boundary to at most `max_bytes`, the last of which are then "…". max_bytes >= 3.
[[nodiscard]] std::string clean_text(std::string_view text, std::size_t max_bytes);

}  // namespace ddprun::protocol
