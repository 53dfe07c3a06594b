#include "common/system/environment.hpp"

#include <string_view>

namespace ddprun {

Environment parse_environment(const char* const* entries) {
    Environment environment;
    for (; *entries != nullptr; ++entries) {
        const std::string_view entry = *entries;
        const std::size_t equals = entry.find('=');
        if (equals == std::string_view::npos) continue;
        environment.try_emplace(std::string(entry.substr(0, equals)),
                                entry.substr(equals + 1));  // getenv(3): the first counts
    }
    return environment;
}

}  // namespace ddprun
