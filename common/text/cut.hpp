#pragma once
// Words of users, cut to what a line or a record of ours has room for: it shows that they were, and characters stay
// whole. Pure.

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun {

/// Stands for what was cut off.
inline constexpr std::string_view kCutMark = "…";

/// How many bytes of UTF-8 `text` to keep, so that they and the mark fit into `most_bytes`, at least those of the mark.
[[nodiscard]] inline std::size_t kept_bytes(std::string_view text, std::size_t most_bytes) {
    assert(most_bytes >= kCutMark.size());
    if (text.size() <= most_bytes) return text.size();
    std::size_t end = most_bytes - kCutMark.size();
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80) --end;  // in the midst of a character
    return end;
}

[[nodiscard]] inline std::string cut(std::string_view text, std::size_t most_bytes) {
    std::string result(text.substr(0, kept_bytes(text, most_bytes)));
    if (result.size() < text.size()) result += kCutMark;
    return result;
}

/// Into a record, whose other bytes stay as they are; a zero byte ends it only where there is room for one.
template <std::size_t Size>
void copy_cut(std::array<char, Size>& to, std::string_view text) {
    static_assert(Size >= kCutMark.size());
    const std::size_t kept = kept_bytes(text, Size);
    const auto end = std::copy_n(text.begin(), kept, to.begin());
    if (kept < text.size()) std::ranges::copy(kCutMark, end);
}

}  // namespace ddprun
