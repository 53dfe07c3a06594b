#include "common/system/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

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

std::optional<std::string> visible_device(std::string_view visible, LocalRank local_rank) {
    if (visible.empty()) return "";  // all devices are hidden
    for (int at = 0;; ++at) {
        const auto comma = visible.find(',');
        if (at == number(local_rank)) return std::string(visible.substr(0, comma));
        if (comma == std::string_view::npos) return std::nullopt;
        visible.remove_prefix(comma + 1);
    }
}

Result<Pipe> make_pipe(std::string_view what) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error(fmt::format("cannot make a pipe {}", what), errno);
    return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace ddprun
