#include "agent/guard/process_look.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include "agent/guard/proc_scan.hpp"
#include "agent/guard/proc_text.hpp"
#include "common/system/process_stat.hpp"

namespace ddprun::agent {
namespace {

/// Copies `from` to the array at `to`, cut to its size, without control characters.
void copy_printable(std::string_view from, char* to, std::size_t capacity) noexcept {
    const std::string_view copied = from.substr(0, capacity - 1);
    std::ranges::replace_copy_if(
        copied, to, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
    to[copied.size()] = '\0';
}

using Buffer = std::array<char, 512>;

/// Reads the file `name` of the process or thread whose folder in `parent` is `pid`. Returns its text, in `buffer`;
/// empty: it cannot be read.
std::string_view read_of(int parent, pid_t pid, const char* name, Buffer& buffer) noexcept {
    char path[64];
    std::snprintf(path, sizeof path, "%d/%s", pid, name);
    const ssize_t size = read_text_at(parent, path, buffer.data(), buffer.size());
    return {buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

/// Looks for a thread that is left of a process whose first one has ended: one that waits in the kernel, if any.
void look_at_threads(int proc, pid_t pid, ProcessLook& look) noexcept {
    char path[32];
    std::snprintf(path, sizeof path, "%d/task", pid);
    const UniqueFd tasks(::openat(proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!tasks) return;
    for_each_pid(tasks.get(), [&](pid_t thread) {
        Buffer buffer;
        const char state = parse_process_stat(read_of(tasks.get(), thread, "stat", buffer)).state;
        if (state == '\0' || state == 'Z' || state == 'X' || look.state == 'D') return;
        look.state = state;
        look.thread = thread;
    });
}

}  // namespace

ProcessLook look_at(int proc, pid_t pid) noexcept {
    ProcessLook look;
    Buffer buffer;
    const ProcessStat stat = parse_process_stat(read_of(proc, pid, "stat", buffer));
    if (stat.state == '\0') return look;
    copy_printable(stat.name, look.name, sizeof look.name);
    look.state = stat.state;
    look.thread = pid;
    look.parent = stat.parent;
    if (look.state == 'Z') look_at_threads(proc, pid, look);
    return look;
}

ProcessLook look_at(pid_t pid) noexcept {
    const UniqueFd proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!proc) return {};
    ProcessLook look = look_at(proc.get(), pid);
    if (look.state != 'D') return look;
    Buffer buffer;
    const std::string_view function = read_of(proc.get(), look.thread, "wchan", buffer);
    if (!function.starts_with('0')) copy_printable(function, look.waits_in, sizeof look.waits_in);
    return look;
}

}  // namespace ddprun::agent
