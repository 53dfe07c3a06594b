#pragma once
// Environment variables as a value.

#include <functional>
#include <map>
#include <string>

namespace ddprun {

/// Environment variables, to look them up and to pass on a changed set.
using Environment = std::map<std::string, std::string, std::less<>>;

/// Returns the variables of "NAME=value" strings, as in ::environ. If a name occurs twice, the first one counts, as for
/// getenv(3).
[[nodiscard]] Environment parse_environment(const char* const* entries);

}  // namespace ddprun
