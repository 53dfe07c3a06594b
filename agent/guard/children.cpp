#include "agent/guard/children.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

namespace ddprun::agent {
namespace {

constexpr int kPathBytes = 64;
constexpr int kBufferBytes = 4096;

/// Returns the next decimal number of `text` at or after `at`; -1 if there is none. Moves `at` behind it.
long next_number(const char* text, ssize_t size, ssize_t& at) {
    while (at < size && (text[at] < '0' || text[at] > '9')) ++at;
    if (at == size) return -1;
    long number = 0;
    for (; at < size && text[at] >= '0' && text[at] <= '9'; ++at) number = number * 10 + (text[at] - '0');
    return number;
}

/// Returns the parent of the process whose entry in /proc is `name`; -1 if the process has ended. The guard must not
/// allocate, so it cannot use ddprun::parent_of().
pid_t parent_of(int proc, const char* name) {
    char path[kPathBytes] = "";
    if (std::strlen(name) + sizeof "/stat" > sizeof path) return -1;
    std::strcat(std::strcat(path, name), "/stat");
    const int fd = ::openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    char text[512];
    const ssize_t size = ::read(fd, text, sizeof text);
    ::close(fd);
    ssize_t at = size;  // "pid (name) S parent …": the name may contain anything, so search from the end
    while (at > 0 && text[at - 1] != ')') --at;
    return at > 0 ? static_cast<pid_t>(next_number(text, size, at)) : -1;
}

/// Returns the pid of an entry of /proc; -1 for entries that are not processes.
pid_t pid_of_entry(const char* name) {
    if (name[0] < '0' || name[0] > '9') return -1;
    ssize_t at = 0;
    return static_cast<pid_t>(next_number(name, static_cast<ssize_t>(std::strlen(name)), at));
}

}  // namespace

int list_children_by_scan(pid_t* out, int capacity) noexcept {
    const int proc = ::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0) return -1;
    const pid_t self = ::getpid();
    int count = 0;
    alignas(dirent64) char buffer[kBufferBytes];
    // Uses the system call, because opendir(3) allocates.
    for (ssize_t size; (size = ::getdents64(proc, buffer, sizeof buffer)) > 0;) {
        for (ssize_t offset = 0; offset < size;) {
            const auto* entry = reinterpret_cast<const dirent64*>(buffer + offset);
            const pid_t pid = pid_of_entry(entry->d_name);
            if (pid > 0 && count < capacity && parent_of(proc, entry->d_name) == self) out[count++] = pid;
            offset += entry->d_reclen;
        }
    }
    ::close(proc);
    return count;
}

int list_children(pid_t* out, int capacity) noexcept {
    const int fd = ::open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return list_children_by_scan(out, capacity);
    char text[kBufferBytes];
    ssize_t kept = 0;  // the start of a number that the last read cut
    int count = 0;
    for (ssize_t got;
         count < capacity && (got = ::read(fd, text + kept, sizeof text - static_cast<std::size_t>(kept))) > 0;) {
        const ssize_t size = kept + got;
        ssize_t end = size;
        while (end > 0 && text[end - 1] != ' ') --end;  // the kernel puts a space behind every pid
        ssize_t at = 0;
        for (long pid; count < capacity && (pid = next_number(text, end, at)) > 0;)
            out[count++] = static_cast<pid_t>(pid);
        kept = size - end;
        std::memmove(text, text + end, static_cast<std::size_t>(kept));
    }
    ::close(fd);
    return count;
}

}  // namespace ddprun::agent
