#include "agent/guard/process_look.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "agent/guard/proc_text.hpp"

namespace ddprun::agent {
namespace {

/// Copies `from` to the array at `to`, cut to its size, without control characters.
void copy_printable(const char* from, const char* end, char* to, std::size_t capacity) noexcept {
    const auto size = std::min(static_cast<std::size_t>(end - from), capacity - 1);
    std::replace_copy_if(
        from, from + size, to, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
    to[size] = '\0';
}

/// Reads /proc/PID/`name`.
ssize_t read_of(int proc, pid_t pid, const char* name, char* text, std::size_t capacity) noexcept {
    char path[64];
    std::snprintf(path, sizeof path, "%d/%s", pid, name);
    return read_text_at(proc, path, text, capacity);
}

}  // namespace

ProcessLook look_at(int proc, pid_t pid) noexcept {
    ProcessLook look;
    char text[512];
    const ssize_t size = read_of(proc, pid, "stat", text, sizeof text);
    if (size <= 0) return look;
    const char* const first = std::strchr(text, '(');
    const char* const last = std::strrchr(text, ')');  // the name may contain anything, so search from the end
    if (first == nullptr || last == nullptr || text + size < last + 4) return look;
    copy_printable(first + 1, last, look.name, sizeof look.name);
    look.state = last[2];
    ssize_t at = last - text;
    look.parent = static_cast<pid_t>(next_number(text, size, at));
    return look;
}

ProcessLook look_at(pid_t pid) noexcept {
    const UniqueFd proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!proc) return {};
    ProcessLook look = look_at(proc.get(), pid);
    char text[64];
    const ssize_t size = look.state == 'D' ? read_of(proc.get(), pid, "wchan", text, sizeof text) : 0;
    if (size > 0 && text[0] != '0') copy_printable(text, text + size, look.waits_in, sizeof look.waits_in);
    return look;
}

}  // namespace ddprun::agent
