#pragma once
// Cuts text to the room that a line or a record has, with a mark, between two characters of UTF-8. Pure.

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun {

/// Replaces the part that was cut off.
inline constexpr std::string_view kCutMark = "…";

/// Returns how many of the first `max_bytes` bytes of UTF-8 `text` are whole characters.
[[nodiscard]] inline std::size_t whole_characters(std::string_view text, std::size_t max_bytes) {
    if (text.size() <= max_bytes) return text.size();
    std::size_t end = max_bytes;
    // At most three bytes continue a character: more of them are no UTF-8.
    for (int i = 0; i < 3 && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80; ++i) --end;
    return end;
}

/// Returns how many bytes of UTF-8 `text` to keep so that they and the mark fit into `max_bytes`.
[[nodiscard]] inline std::size_t kept_bytes(std::string_view text, std::size_t max_bytes) {
    assert(max_bytes >= kCutMark.size());
    return text.size() <= max_bytes ? text.size() : whole_characters(text, max_bytes - kCutMark.size());
}

/// Returns `text`, cut to `max_bytes` with the mark if it is longer.
[[nodiscard]] inline std::string cut(std::string_view text, std::size_t max_bytes) {
    std::string result(text.substr(0, kept_bytes(text, max_bytes)));
    if (result.size() < text.size()) result += kCutMark;
    return result;
}

/// Copies `text`, cut to `Size` bytes, into `to`, whose further bytes stay as they are.
template <std::size_t Size>
void copy_cut(std::array<char, Size>& to, std::string_view text) {
    static_assert(Size >= kCutMark.size());
    const std::size_t kept = kept_bytes(text, Size);
    const auto end = std::copy_n(text.begin(), kept, to.begin());
    if (kept < text.size()) std::ranges::copy(kCutMark, end);
}

}  // namespace ddprun
