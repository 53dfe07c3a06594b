#include "common/process_state.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "common/unique_fd.hpp"

namespace ddprun {

std::string parse_process_state(std::string_view stat) {
    // "71 (name) S 70 …": the name may hold anything, parentheses too.
    const auto end = stat.rfind(") ");
    if (end == std::string_view::npos || end + 2 >= stat.size()) return "unknown";
    switch (stat[end + 2]) {
        case 'T':
        case 't': return "stopped";
        case 'D': return "in the kernel";
        case 'Z':
        case 'X': return "ended";
        default: return "running";
    }
}

std::string process_state(pid_t pid) {
    const UniqueFd file(::open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
    std::array<char, 512> text{};
    if (!file && errno == ENOENT) return "ended";
    const ssize_t size = file ? ::read(file.get(), text.data(), text.size()) : 0;
    if (size < 0 && errno == ESRCH) return "ended";  // between the two calls
    return parse_process_state({text.data(), static_cast<std::size_t>(size > 0 ? size : 0)});
}

}  // namespace ddprun
