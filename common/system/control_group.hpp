#pragma once
// Finds the folders of this process's control group, version 1 or 2, in which the kernel shows its limits.

#include <filesystem>
#include <string_view>
#include <vector>

namespace ddprun {

/// Returns the folders that may have files of `controller` ("cpu", "memory", "pids") for this process: its group's and
/// those of all groups above it, whose limits hold too, the innermost first. The folder of the group is missing in most
/// containers, where the topmost folder is the container's.
[[nodiscard]] std::vector<std::filesystem::path> control_group_folders(std::string_view controller);

/// The same from the contents of /proc/self/cgroup. Pure.
[[nodiscard]] std::vector<std::filesystem::path> control_group_folders(std::string_view controller,
                                                                       std::string_view proc_self_cgroup);

}  // namespace ddprun
