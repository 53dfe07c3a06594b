#pragma once
// Upper and lower case of ASCII letters. Pure.

#include <algorithm>
#include <string>

namespace ddprun {

/// Returns `text` with A to Z as a to z; other bytes stay, whatever the locale.
[[nodiscard]] inline std::string lower_case(std::string text) {
    std::ranges::transform(text, text.begin(),
                           [](char c) { return 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return text;
}

}  // namespace ddprun
