#pragma once
// Finds what a mistyped word was meant to be.

#include <span>
#include <string>
#include <string_view>

namespace ddprun {

/// " Did you mean X?" for the known word that `typed` begins, or that is few edits away; empty when none is near.
[[nodiscard]] std::string did_you_mean(std::string_view typed, std::span<const std::string_view> known);

}  // namespace ddprun
