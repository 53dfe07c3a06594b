// The folders of a control group, from texts as the kernel writes them.

#include "common/system/control_group.hpp"

#include "tests/catch.hpp"

using ddprun::control_group_folders;
using Folders = std::vector<std::filesystem::path>;

TEST_CASE("the folders of a control group are its own and those above it", "[common][unit]") {
    CHECK(control_group_folders("pids", "0::/system.slice/job.scope\n") ==
          Folders{"/sys/fs/cgroup/system.slice/job.scope", "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup"});
    CHECK(control_group_folders("pids", "0::/\n") == Folders{"/sys/fs/cgroup"});
    const std::string version_1 = "12:pids:/docker/7\n4:cpu,cpuacct:/docker\n3:cpuset:/x\n1:name=systemd:/docker\n";
    CHECK(control_group_folders("cpu", version_1) == Folders{"/sys/fs/cgroup/cpu/docker", "/sys/fs/cgroup/cpu"});
    CHECK(control_group_folders("pids", version_1) ==
          Folders{"/sys/fs/cgroup/pids/docker/7", "/sys/fs/cgroup/pids/docker", "/sys/fs/cgroup/pids"});
    CHECK(control_group_folders("memory", version_1).empty());
    // Both at once: the controllers that version 1 does not have are those of version 2.
    CHECK(control_group_folders("pids", "1:cpu:/a\n0::/b\n") == Folders{"/sys/fs/cgroup/b", "/sys/fs/cgroup"});
}

TEST_CASE("lines that are no control group are skipped", "[common][unit]") {
    CHECK(control_group_folders("pids", "").empty());
    CHECK(control_group_folders("pids", "nothing\n12:pids\n").empty());
}
