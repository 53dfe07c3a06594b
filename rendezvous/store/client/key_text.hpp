#pragma once
// Formats keys for the client's messages.

#include <span>
#include <string>
#include <string_view>

#include "common/endpoint.hpp"

namespace ddprun::store {

/// Returns "'a'": the key, cut, with control characters replaced. Pure.
[[nodiscard]] std::string quoted(std::string_view key);

/// Returns "'a', 'b' and 3 more". Pure.
[[nodiscard]] std::string quoted_list(std::span<const std::string> keys);

/// Returns "key 'a'" or "keys 'a', 'b' and 3 more". Pure.
[[nodiscard]] std::string named(std::span<const std::string> keys);

/// Returns a hint about a key that did not arrive in time: "; keys with that prefix: 'a/1', 'a/2' and 7 more". Asks
/// over a connection of its own, because servers that do not know LIST_KEYS (PyTorch before 2.10) end it. Empty when
/// the store does not answer within a second.
[[nodiscard]] std::string missing_key_hint(const Endpoint& endpoint, std::string_view missing_key);

}  // namespace ddprun::store
