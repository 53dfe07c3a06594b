#pragma once
// The kernel's number of the calling thread, as gdb and top show it.

#include <unistd.h>

namespace ddp::detail {

/// Returns the number; the first call of a thread costs a system call.
[[nodiscard]] inline pid_t thread_id() {
    static constinit thread_local pid_t id = 0;
    if (id == 0) id = ::gettid();
    return id;
}

}  // namespace ddp::detail
