#include "agent/workers/older_processes.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <optional>
#include <vector>

#include "agent/guard/proc_scan.hpp"
#include "common/clock.hpp"
#include "common/system/files.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun::agent {
namespace {

constexpr std::chrono::seconds kEndTimeout{1};  // heartbeats wait meanwhile
constexpr int kRounds = 3;                      // one may have forked while it was killed

/// Returns the value of a variable in /proc/PID/environ; nullopt: it is not set.
std::optional<std::string_view> value_in(std::string_view environment, std::string_view name) {
    while (!environment.empty()) {
        const std::size_t end = std::min(environment.find('\0'), environment.size());
        const std::string_view entry = environment.substr(0, end);
        if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
            return entry.substr(name.size() + 1);
        environment.remove_prefix(std::min(end + 1, environment.size()));
    }
    return std::nullopt;
}

bool is_own(int proc, pid_t pid) {
    struct stat folder {};
    return ::fstatat(proc, std::to_string(pid).c_str(), &folder, 0) == 0 && folder.st_uid == ::geteuid();
}

/// Returns a pidfd of each process that belongs_to_older_group(). It is opened before the environment is read, because
/// the pid could pass to another process in between.
std::vector<UniqueFd> find_older(const std::string& session, Generation generation) {
    std::vector<UniqueFd> found;
    for_each_process([&](int proc, pid_t pid) {
        if (pid == ::getpid() || !is_own(proc, pid)) return;
        UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0u)));
        if (pidfd && belongs_to_older_group(content_of(fmt::format("/proc/{}/environ", pid)), session, generation))
            found.push_back(std::move(pidfd));
    });
    return found;
}

/// Kills the processes and waits for their end, up to `deadline`.
void kill_all(const std::vector<UniqueFd>& processes, TimePoint deadline) {
    for (const UniqueFd& process : processes) ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0u);
    for (const UniqueFd& process : processes) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
        pollfd ended{process.get(), POLLIN, 0};
        ::poll(&ended, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    }
}

}  // namespace

bool belongs_to_older_group(std::string_view environment, std::string_view session, Generation generation) {
    if (value_in(environment, kSessionVariable) != session) return false;
    const std::string_view digits = value_in(environment, "DDPRUN_GENERATION").value_or("");
    int of_process = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), of_process);
    return error == std::errc() && end == digits.data() + digits.size() && of_process < number(generation);
}

int end_older_processes(const std::string& session, Generation generation) {
    if (session.empty()) return 0;
    const TimePoint deadline = Clock::now() + kEndTimeout;
    int count = 0;
    for (int round = 0; round < kRounds; ++round) {
        const std::vector<UniqueFd> found = find_older(session, generation);
        if (found.empty()) break;
        kill_all(found, deadline);
        count += static_cast<int>(found.size());
    }
    return count;
}

}  // namespace ddprun::agent
