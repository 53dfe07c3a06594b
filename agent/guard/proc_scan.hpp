#pragma once
// Goes through the processes of /proc without allocation, for the guard. Any thread.

#include <dirent.h>
#include <fcntl.h>
#include <sys/types.h>

#include <cstring>

#include "agent/guard/proc_text.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun::agent {

/// Returns the pid of an entry of /proc; -1 for entries that are not processes.
[[nodiscard]] inline pid_t pid_of_entry(const char* name) noexcept {
    if (name[0] < '0' || name[0] > '9') return -1;
    ssize_t at = 0;
    return static_cast<pid_t>(next_number(name, static_cast<ssize_t>(std::strlen(name)), at));
}

/// Calls `visit` with each pid in `folder`, a descriptor of /proc or of /proc/PID/task, lowest first.
template <typename Visit>
void for_each_pid(int folder, const Visit& visit) noexcept {
    alignas(dirent64) char buffer[4096];
    // Uses the system call, because opendir(3) allocates.
    for (ssize_t size; (size = ::getdents64(folder, buffer, sizeof buffer)) > 0;) {
        for (ssize_t offset = 0; offset < size;) {
            const auto* entry = reinterpret_cast<const dirent64*>(buffer + offset);
            if (const pid_t pid = pid_of_entry(entry->d_name); pid > 0) visit(pid);
            offset += entry->d_reclen;
        }
    }
}

/// Calls `visit` with a descriptor of /proc and the pid of each process, lowest pid first. Returns false if /proc
/// cannot be read.
template <typename Visit>
bool for_each_process(const Visit& visit) noexcept {
    const UniqueFd proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!proc) return false;
    for_each_pid(proc.get(), [&](pid_t pid) { visit(proc.get(), pid); });
    return true;
}

}  // namespace ddprun::agent
