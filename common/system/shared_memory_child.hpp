#pragma once
// Starting a process that shares its parent's memory until its exec, and runs one function until then
// (docs/design/020). That function makes only system calls: it neither allocates nor locks.

#include <sched.h>
#include <sys/types.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <memory>

/// Marks a function that such a process runs: no sanitizer may keep books about it in the parent's memory.
#define DDPRUN_RUNS_IN_CHILD __attribute__((no_sanitize("address", "thread")))

namespace ddprun {

/// ChildStack: owns the stack of one such process. 64 KiB are enough for system calls, and for the dynamic linker to
/// look up the functions that make them.
class ChildStack {
public:
    [[nodiscard]] std::byte* low() const { return bytes_->data(); }
    [[nodiscard]] std::byte* high() const { return bytes_->data() + bytes_->size(); }
    [[nodiscard]] std::size_t size() const { return bytes_->size(); }

private:
    using Bytes = std::array<std::byte, 64u << 10>;
    std::unique_ptr<Bytes> bytes_ = std::make_unique_for_overwrite<Bytes>();
};

/// Starts a process that runs `run(argument)` on `stack` and ends with its result unless it executes a program. Returns
/// its pid when it has done either, or -1 with errno. `flags`: further ones of clone(2), CLONE_PIDFD with `pidfd`.
/// Not vfork(2): AddressSanitizer's keeps one return address per thread, which a second vfork in the child replaces.
DDPRUN_RUNS_IN_CHILD inline pid_t clone_sharing_memory(int (*run)(void*), void* argument, const ChildStack& stack,
                                                       int flags = 0, int* pidfd = nullptr) {
    return ::clone(run, stack.high(), CLONE_VM | CLONE_VFORK | SIGCHLD | flags, argument, pidfd);
}

}  // namespace ddprun
