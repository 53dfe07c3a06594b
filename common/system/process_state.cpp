#include "common/system/process_state.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <thread>

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

/// Returns /proc/PID/status. All of it: the groups of a user, which come before the signals, may be thousands.
std::string status_of(pid_t pid) { return content_of(fmt::format("/proc/{}/status", pid)); }

enum class SignalWait { kNo, kYes, kUnknown };

/// Returns whether a thread of the process waits for signals (sigwait(3), sigtimedwait(2)). Its SigBlk does not have
/// them meanwhile. Unknown while a thread runs: it may be on its way into the wait or out of it.
SignalWait waits_for_signals(pid_t pid) {
    SignalWait found = SignalWait::kNo;
    std::error_code ec;
    for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), ec)) {
        const std::string call = content_of((thread.path() / "syscall").string());
        if (call.starts_with(fmt::format("{} ", SYS_rt_sigtimedwait))) return SignalWait::kYes;
        if (call.starts_with("running")) found = SignalWait::kUnknown;
    }
    return found;
}

// A shell blocks all signals for a moment when it forks; a program that reads them from a descriptor, all the time.
constexpr int kLooks = 5;
constexpr std::chrono::milliseconds kBetweenLooks{5};

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

bool parse_signal_set(std::string_view status, std::string_view set, int signal) {
    const std::string key = fmt::format("\n{}:\t", set);
    const auto at = status.find(key);
    if (at == std::string_view::npos) return false;
    const std::string_view digits = status.substr(at + key.size(), 16);
    std::uint64_t signals = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), signals, 16);
    return (signals >> (signal - 1) & 1) != 0;
}

bool ignores_signal(pid_t pid, int signal) { return parse_signal_set(status_of(pid), "SigIgn", signal); }

bool handles_signal(pid_t pid, int signal) {
    bool is_blocked = false;
    for (int look = 0; look < kLooks; ++look) {
        if (look > 0) std::this_thread::sleep_for(kBetweenLooks);
        const std::string status = status_of(pid);
        const SignalWait wait = waits_for_signals(pid);
        if (parse_signal_set(status, "SigCgt", signal) || wait == SignalWait::kYes) return true;
        is_blocked = parse_signal_set(status, "SigBlk", signal);
        if (!is_blocked && wait == SignalWait::kNo) return false;
    }
    return is_blocked;
}

bool is_below(pid_t pid, pid_t ancestor) {
    while (pid > 1 && pid != ancestor) pid = parent_of(pid);
    return pid == ancestor;
}

}  // namespace ddprun
