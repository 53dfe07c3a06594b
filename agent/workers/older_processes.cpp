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
#include <cstdlib>
#include <optional>
#include <set>
#include <vector>

#include "agent/guard/fence_group.hpp"
#include "agent/guard/proc_scan.hpp"
#include "agent/guard/proc_text.hpp"
#include "agent/guard/process_look.hpp"
#include "common/clock.hpp"
#include "common/system/files.hpp"
#include "common/system/unique_fd.hpp"
#include "common/system/within.hpp"

namespace ddprun::agent {
namespace {

constexpr std::chrono::seconds kEndTimeout{1};          // heartbeats wait meanwhile
constexpr std::chrono::milliseconds kReadTimeout{100};  // of one process, so that one that is stuck hides no other
constexpr char kSlurmJobVariable[] = "SLURM_JOB_ID";
constexpr int kRounds = 3;  // one may have forked while it was killed

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

std::string group_of(int proc, pid_t pid) {
    char membership[4096];
    const ssize_t size = read_text_at(proc, fmt::format("{}/cgroup", pid).c_str(), membership, sizeof membership);
    return std::string(unified_group({membership, static_cast<std::size_t>(std::max<ssize_t>(size, 0))}));
}

/// Returns the environment of a process; nullopt: the kernel does not show it in time, because the process is stuck.
std::optional<std::string> environment_of(pid_t pid) {
    return within(kReadTimeout, [pid] { return content_of(fmt::format("/proc/{}/environ", pid)); });
}

/// Returns `group` with "session.scope" for systemd's "session-N.scope", the group of one login session.
std::string without_session_number(std::string_view group) {
    constexpr std::string_view kBegin = "/session-";
    constexpr std::string_view kEnd = ".scope";
    const std::size_t begin = group.find(kBegin);
    const std::size_t end = begin == std::string_view::npos ? begin : group.find('/', begin + 1);
    const std::string_view name = begin == std::string_view::npos ? "" : group.substr(begin, end - begin);
    if (!name.ends_with(kEnd)) return std::string(group);
    return std::string(group).replace(begin, name.size(), "/session.scope");
}

/// Returns this process, its ancestors (the guard is one) and the guard's other children (its keeper).
std::vector<pid_t> own_family() {
    std::vector<pid_t> family;
    for (pid_t pid = ::getpid(); pid > 0; pid = look_at(pid).parent) family.push_back(pid);
    for_each_process([&](int proc, pid_t pid) {
        if (::getppid() > 1 && look_at(proc, pid).parent == ::getppid()) family.push_back(pid);
    });
    return family;
}

/// Returns a pidfd of each process that an earlier agent has left here. It is opened before anything is read, because
/// the pid could pass to another process in between. The group is read first, because that never takes long.
std::vector<UniqueFd> find_older(const JobStep& step, TimePoint deadline, std::set<pid_t>& unreadable) {
    const std::vector<pid_t> family = own_family();
    std::optional<std::string> own_group;
    std::vector<UniqueFd> found;
    for_each_process([&](int proc, pid_t pid) {
        if (std::ranges::find(family, pid) != family.end() || !is_own(proc, pid)) return;
        if (!own_group) own_group = group_of(proc, ::getpid());
        UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0u)));
        if (!pidfd || !is_in_step(group_of(proc, pid), *own_group)) return;
        if (Clock::now() + kReadTimeout > deadline) {
            if (!unreadable.empty()) unreadable.insert(pid);  // others have used up the time
            return;
        }
        const std::optional<std::string> environment = environment_of(pid);
        if (environment)
            unreadable.erase(pid);
        else
            unreadable.insert(pid);
        if (environment && belongs_to_older_group(*environment, step)) found.push_back(std::move(pidfd));
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

bool belongs_to_older_group(std::string_view environment, const JobStep& step) {
    if (value_in(environment, kSessionVariable) != step.session) return false;
    if (value_in(environment, kSlurmJobVariable).value_or("") != step.slurm_job) return false;
    const std::string_view digits = value_in(environment, "DDPRUN_GENERATION").value_or("");
    int of_process = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), of_process);
    return error == std::errc() && end == digits.data() + digits.size() && of_process < number(step.generation);
}

bool is_in_step(std::string_view group, std::string_view own) {
    const std::string process = without_session_number(group);
    const std::string agent = without_session_number(own);
    if (process == agent) return true;
    return process.starts_with(fmt::format("{}{}{}", agent, agent.ends_with('/') ? "" : "/", kFenceGroupPrefix));
}

OlderProcesses end_older_processes(const std::string& session, Generation generation) {
    OlderProcesses ended;
    if (session.empty()) return ended;
    const char* const slurm_job = ::getenv(kSlurmJobVariable);
    const JobStep step{session, slurm_job == nullptr ? "" : slurm_job, generation};
    const TimePoint deadline = Clock::now() + kEndTimeout;
    for (int round = 0; round < kRounds && Clock::now() < deadline; ++round) {
        const std::vector<UniqueFd> found = find_older(step, deadline, ended.unreadable);
        if (found.empty()) break;
        kill_all(found, deadline);
        ended.killed += static_cast<int>(found.size());
    }
    return ended;
}

}  // namespace ddprun::agent
