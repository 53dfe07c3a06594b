#include "common/system/process_state.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>

#include "common/system/unique_fd.hpp"

namespace ddprun {
namespace {

/// Returns "S 70 …" of "71 (name) S 70 …": the name may contain anything, also parentheses.
std::string_view after_name(std::string_view stat) {
    const auto end = stat.rfind(") ");
    return end == std::string_view::npos ? "" : stat.substr(end + 2);
}

/// Returns the first `max_bytes` of /proc/PID/`name`; empty, with errno set, if it cannot be read.
std::string read_proc(pid_t pid, std::string_view name, std::size_t max_bytes) {
    const UniqueFd file(::open(fmt::format("/proc/{}/{}", pid, name).c_str(), O_RDONLY | O_CLOEXEC));
    std::string text(max_bytes, '\0');
    const ssize_t size = file ? ::read(file.get(), text.data(), text.size()) : 0;
    text.resize(static_cast<std::size_t>(size > 0 ? size : 0));
    return text;
}

std::string stat_of(pid_t pid) { return read_proc(pid, "stat", 512); }

}  // namespace

std::string to_string(ProcessState state) {
    switch (state) {
        case ProcessState::kRunning: return "running";
        case ProcessState::kStopped: return "stopped";
        case ProcessState::kInKernel: return "in the kernel";
        case ProcessState::kEnded: return "ended";
        case ProcessState::kNotStarted: return "not started yet";
        case ProcessState::kUnknown: break;
    }
    return "unknown";
}

ProcessState parse_process_state(std::string_view stat) {
    const std::string_view rest = after_name(stat);
    if (rest.empty()) return ProcessState::kUnknown;
    switch (rest[0]) {
        case 'T':
        case 't': return ProcessState::kStopped;
        case 'D': return ProcessState::kInKernel;
        case 'Z':
        case 'X': return ProcessState::kEnded;
        default: return ProcessState::kRunning;
    }
}

ProcessState process_state(pid_t pid) {
    errno = 0;
    const std::string stat = stat_of(pid);
    if (stat.empty() && (errno == ENOENT || errno == ESRCH))
        return ProcessState::kEnded;  // ESRCH: between open and read
    return parse_process_state(stat);
}

pid_t parse_parent(std::string_view stat) {
    const std::string_view rest = after_name(stat);
    pid_t parent = -1;
    if (rest.size() > 2) std::from_chars(rest.data() + 2, rest.data() + rest.size(), parent);
    return parent;
}

pid_t parent_of(pid_t pid) { return parse_parent(stat_of(pid)); }

bool parse_ignores_signal(std::string_view status, int signal) {
    constexpr std::string_view kKey = "\nSigIgn:\t";
    const auto at = status.find(kKey);
    if (at == std::string_view::npos) return false;
    const std::string_view digits = status.substr(at + kKey.size(), 16);
    std::uint64_t ignored = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), ignored, 16);
    return (ignored >> (signal - 1) & 1) != 0;
}

bool ignores_signal(pid_t pid, int signal) { return parse_ignores_signal(read_proc(pid, "status", 4096), signal); }

bool is_below(pid_t pid, pid_t ancestor) {
    while (pid > 1 && pid != ancestor) pid = parent_of(pid);
    return pid == ancestor;
}

}  // namespace ddprun
