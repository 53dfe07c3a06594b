#pragma once
// ControlGroup: the processes of a node as one control group of version 2, in which the kernel ends all of them at once
// (docs/design/019). Allocates nothing, so that the guard and its keeper use it, too. Any thread.

#include <sys/types.h>

#include <cerrno>

#include "common/system/unique_fd.hpp"

namespace ddprun::agent {

class ControlGroup {
public:
    ControlGroup() noexcept = default;
    /// Opens the group whose folder is `path`; see is_open().
    explicit ControlGroup(const char* path) noexcept;

    [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(folder_); }
    /// Returns a descriptor of the folder.
    [[nodiscard]] int fd() const noexcept { return folder_.get(); }

    /// Sends SIGKILL to every process of the group and of the groups below it, also to those that are forking. A worker
    /// that was just forked joins only after that, so repeat the call while is_populated().
    void kill() noexcept;
    /// Has the kernel stop, or continue, every process of the group and of the groups below it. SIGKILL ends them all
    /// the same.
    void set_frozen(bool frozen) noexcept;
    /// Returns whether a process has to move into the group (join_control_group()). The kernel kills one that is born
    /// in it if this group and that of its parent were killed a different number of times (seen with Linux 6.18): so
    /// after kill(), or if the parent is itself in such a group.
    [[nodiscard]] bool has_to_be_joined() const noexcept { return has_to_be_joined_; }
    void require_joining() noexcept { has_to_be_joined_ = true; }
    /// Returns whether a process of the group, or of a group below it, has not ended. True where that cannot be read;
    /// false after the group was removed.
    [[nodiscard]] bool is_populated() const noexcept;
    /// Writes up to `capacity` pids of the group and of those below it to `out` and returns how many.
    [[nodiscard]] int list(pid_t* out, int capacity) const noexcept;

private:
    UniqueFd folder_;
    bool has_to_be_joined_ = false;
};

/// Makes the calling process a member of the group whose folder `group_fd` is. Returns 0, or the errno. Called between
/// fork and exec.
[[nodiscard]] int join_control_group(int group_fd) noexcept;

/// Returns whether this errno of clone3(2) means that it cannot be called here, by an old kernel or the seccomp profile
/// of a container: processes then join their group.
[[nodiscard]] constexpr bool is_clone3_refused(int errno_value) noexcept {
    return errno_value == ENOSYS || errno_value == EPERM;
}

/// Removes the group `path` and those that its processes have made below it, if no process is left in them. A group
/// that is removed already is no error.
void remove_control_group(const char* path) noexcept;

}  // namespace ddprun::agent
