#pragma once
// Makes text valid for a JSON document. Pure.

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun::protocol {

/// Returns `text` with each byte that is not part of well-formed UTF-8 (RFC 3629) replaced by U+FFFD. Text longer than
/// `max_bytes` is cut at a character boundary and ends in "…" within that limit. Precondition: max_bytes >= 3.
[[nodiscard]] std::string clean_text(std::string_view text, std::size_t max_bytes);

}  // namespace ddprun::protocol
