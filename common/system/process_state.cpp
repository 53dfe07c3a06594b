#include "common/system/process_state.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>

#include "common/system/files.hpp"
#include "common/system/process_stat.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun {
namespace {

/// Returns the beginning of /proc/PID/stat; empty, with errno set, if it cannot be read.
std::string stat_of(pid_t pid) {
    const UniqueFd file(::open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
    std::string text(512, '\0');
    const ssize_t size = file ? ::read(file.get(), text.data(), text.size()) : 0;
    text.resize(static_cast<std::size_t>(size > 0 ? size : 0));
    return text;
}

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
    switch (parse_process_stat(stat).state) {
        case '\0': return ProcessState::kUnknown;
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

pid_t parent_of(pid_t pid) { return parse_process_stat(stat_of(pid)).parent; }

bool parse_ignores_signal(std::string_view status, int signal) {
    constexpr std::string_view kKey = "\nSigIgn:\t";
    const auto at = status.find(kKey);
    if (at == std::string_view::npos) return false;
    const std::string_view digits = status.substr(at + kKey.size(), 16);
    std::uint64_t ignored = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), ignored, 16);
    return (ignored >> (signal - 1) & 1) != 0;
}

bool ignores_signal(pid_t pid, int signal) {
    // All of it: the groups of a user, which come before, may be thousands.
    return parse_ignores_signal(content_of(fmt::format("/proc/{}/status", pid)), signal);
}

bool is_below(pid_t pid, pid_t ancestor) {
    while (pid > 1 && pid != ancestor) pid = parent_of(pid);
    return pid == ancestor;
}

}  // namespace ddprun
