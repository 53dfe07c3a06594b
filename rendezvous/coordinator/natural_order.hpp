#pragma once
// The order in which host names are listed. Pure.

#include <string_view>

namespace ddprun::coordinator {

/// Compares names with digits as numbers: "n2" before "n10". Names that are equal then ("n2", "n02") compare as text.
[[nodiscard]] bool natural_less(std::string_view left, std::string_view right);

}  // namespace ddprun::coordinator
