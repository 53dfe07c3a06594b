#include "agent/guard/children.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "agent/guard/proc_scan.hpp"
#include "agent/guard/proc_text.hpp"
#include "agent/guard/process_look.hpp"

namespace ddprun::agent {

int list_children_by_scan(pid_t* out, int capacity) noexcept {
    const pid_t self = ::getpid();
    int count = 0;
    const bool readable = for_each_process([&](int proc, pid_t pid) {
        if (count < capacity && look_at(proc, pid).parent == self) out[count++] = pid;
    });
    return readable ? count : -1;
}

int list_children(pid_t* out, int capacity) noexcept {
    const UniqueFd file(::open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC));
    return file ? read_pids(file.get(), out, capacity) : list_children_by_scan(out, capacity);
}

}  // namespace ddprun::agent
