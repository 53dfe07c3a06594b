#pragma once
// How the client's messages name keys and times. Pure.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "common/clock.hpp"

namespace ddprun::store {

inline constexpr std::size_t kNamedKeys = 8;        ///< a message names so many keys
inline constexpr std::size_t kNamedKeyBytes = 120;  ///< and so much of each

/// The key between quotes as a message can carry it: control characters replaced, not endless.
inline std::string quoted(std::string_view key) {
    std::string text = "'";
    for (const char c : key.substr(0, kNamedKeyBytes)) {
        const bool printable = static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
        text += printable ? c : '?';
    }
    text += key.size() > kNamedKeyBytes ? "…'" : "'";
    return text;
}

/// "'a', 'b' and 3 more".
inline std::string quoted_list(std::span<const std::string> keys) {
    std::string text;
    for (std::size_t i = 0; i < std::min(keys.size(), kNamedKeys); ++i) {
        if (i > 0) text += ", ";
        text += quoted(keys[i]);
    }
    if (keys.size() > kNamedKeys) text += fmt::format(" and {} more", keys.size() - kNamedKeys);
    return text;
}

/// "key 'a'", "keys 'a', 'b' and 3 more".
inline std::string named(std::span<const std::string> keys) {
    return (keys.size() == 1 ? "key " : "keys ") + quoted_list(keys);
}

inline double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace ddprun::store
