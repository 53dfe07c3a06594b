#include "common/system/host_pid.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string_view>

namespace ddprun {
namespace {

int host_proc_fd = -1;  // as the namespace itself, it belongs to the process and not to an object

/// Returns the number in the line "Pid:\t71" of the text of /proc/PID/fdinfo/FD; -1 if there is none.
pid_t parse_pid(std::string_view fdinfo) noexcept {
    constexpr std::string_view kKey = "\nPid:";
    const auto at = fdinfo.find(kKey);
    return at == std::string_view::npos ? -1 : std::atoi(fdinfo.data() + at + kKey.size());
}

}  // namespace

void translate_pids_by(UniqueFd host_proc) noexcept { host_proc_fd = host_proc.release(); }

pid_t host_pid(pid_t pid) noexcept {
    if (host_proc_fd < 0) return pid;
    // The kernel shows the pid behind a pidfd as the namespace of that /proc numbers it.
    const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0u)));
    if (!pidfd) return pid;
    const std::string path = fmt::format("self/fdinfo/{}", pidfd.get());
    const UniqueFd file(::openat(host_proc_fd, path.c_str(), O_RDONLY | O_CLOEXEC));
    std::array<char, 512> text{};
    const ssize_t size = file ? ::read(file.get(), text.data(), text.size() - 1) : -1;
    const pid_t translated = size > 0 ? parse_pid({text.data(), static_cast<std::size_t>(size)}) : -1;
    return translated > 0 ? translated : pid;
}

}  // namespace ddprun
