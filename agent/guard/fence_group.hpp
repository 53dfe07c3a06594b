#pragma once
// FenceGroup: makes and owns the control group in which the workers of one node run, so that the kernel ends them at
// once (docs/design/019). Made by the launcher before it becomes guard and agent; main thread.

#include <optional>
#include <string>
#include <string_view>

#include "common/error.hpp"

namespace ddprun::agent {

/// Returns the folder of the version 2 control group of a process, whose /proc/PID/cgroup is `membership`, in one of
/// the mounts of `mountinfo` (/proc/PID/mountinfo). nullopt: there is no such mount, or it does not show the group.
/// Pure.
[[nodiscard]] std::optional<std::string> control_group_folder(std::string_view mountinfo, std::string_view membership);

/// Returns the path of the version 2 control group in `membership`, a text of /proc/PID/cgroup; empty: there is none.
/// Pure.
[[nodiscard]] std::string_view unified_group(std::string_view membership);

/// The start of the name of every FenceGroup's folder.
inline constexpr std::string_view kFenceGroupPrefix = "ddprun-";

class FenceGroup {
public:
    /// Removes empty groups that killed launchers have left, makes a group below that of this process, and has a child
    /// process enter it, to find out whether workers may. Errors: one clause, the reason why this machine offers no
    /// such group.
    [[nodiscard]] static Result<FenceGroup> make();

    FenceGroup(FenceGroup&& other) noexcept;
    FenceGroup& operator=(FenceGroup&&) = delete;
    /// Removes the group unless a process is left in it; its keeper does it then.
    ~FenceGroup();

    [[nodiscard]] const std::string& path() const { return path_; }
    /// Returns ControlGroup::has_to_be_joined() of the group.
    [[nodiscard]] bool has_to_be_joined() const { return has_to_be_joined_; }

private:
    explicit FenceGroup(std::string path) : path_(std::move(path)) {}

    std::string path_;  ///< empty: moved from
    bool has_to_be_joined_ = false;
};

}  // namespace ddprun::agent
