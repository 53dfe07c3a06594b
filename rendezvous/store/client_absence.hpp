#pragma once
// What the message of a wait that ended late says about the keys that are there instead.

#include <string>
#include <string_view>

#include "common/endpoint.hpp"

namespace ddprun::store {

/// "; keys with that prefix: 'a/1', 'a/2' and 7 more": asks over a connection of its own, for servers that do not know
/// LIST_KEYS (PyTorch before 2.10) end it. Empty when the store does not tell within a second.
[[nodiscard]] std::string what_is_there_instead(const Endpoint& endpoint, std::string_view missing_key);

}  // namespace ddprun::store
