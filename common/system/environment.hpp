#pragma once
// Environment variables as a map: for looking them up, and for handing them on changed.

#include <functional>
#include <map>
#include <string>

namespace ddprun {

using Environment = std::map<std::string, std::string, std::less<>>;

/// From "NAME=value" strings, as in ::environ. Of a name that occurs twice the first counts, as for getenv(3).
[[nodiscard]] Environment parse_environment(const char* const* entries);

}  // namespace ddprun
