#include "agent/guard/children.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "agent/guard/proc_scan.hpp"
#include "agent/guard/proc_text.hpp"
#include "agent/guard/process_look.hpp"

namespace ddprun::agent {
namespace {

constexpr int kBufferBytes = 4096;

}  // namespace

int list_children_by_scan(pid_t* out, int capacity) noexcept {
    const pid_t self = ::getpid();
    int count = 0;
    const bool readable = for_each_process([&](int proc, pid_t pid) {
        if (count < capacity && look_at(proc, pid).parent == self) out[count++] = pid;
    });
    return readable ? count : -1;
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
