#include "common/system/control_group.hpp"

#include <sstream>
#include <string>

#include "common/system/files.hpp"

namespace ddprun {

namespace fs = std::filesystem;

std::vector<fs::path> control_group_folders(std::string_view controller) {
    return control_group_folders(controller, content_of("/proc/self/cgroup"));
}

std::vector<fs::path> control_group_folders(std::string_view controller, std::string_view proc_self_cgroup) {
    std::vector<fs::path> folders;
    std::istringstream lines{std::string(proc_self_cgroup)};
    for (std::string line; std::getline(lines, line);) {
        // "4:cpu,cpuacct:/user.slice" of version 1, "0::/user.slice" of version 2
        const auto first = line.find(':');
        const auto second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const bool is_version_2 = controllers == ",,";
        if (!is_version_2 && controllers.find("," + std::string(controller) + ",") == std::string::npos) continue;
        const fs::path top = is_version_2 ? fs::path("/sys/fs/cgroup") : fs::path("/sys/fs/cgroup") / controller;
        fs::path group = fs::path(line.substr(second + 1)).relative_path();
        for (; !group.empty(); group = group.parent_path()) folders.push_back(top / group);
        folders.push_back(top);
    }
    return folders;
}

}  // namespace ddprun
