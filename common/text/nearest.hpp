#pragma once
// Suggests the known word that a mistyped one resembles. Pure.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

/// Returns " Did you mean X?" for the known word that begins with `typed` or is few edits away; empty: there is none.
[[nodiscard]] std::string did_you_mean(std::string_view typed, std::span<const std::string_view> known);
[[nodiscard]] std::string did_you_mean(std::string_view typed, const std::vector<std::string>& known);

}  // namespace ddprun
