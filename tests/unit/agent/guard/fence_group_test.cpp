// Where the control group of a process is mounted, and what the group does to its processes.
#include "agent/guard/fence_group.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "agent/guard/control_group.hpp"
#include "agent/guard/describe_process.hpp"
#include "agent/guard/proc_text.hpp"
#include "agent/guard/process_look.hpp"
#include "agent/guard/survivors.hpp"
#include "common/system/process_state.hpp"
#include "tests/catch.hpp"
#include "tests/unit/agent/workers/processes.hpp"

using namespace ddprun;
using namespace ddprun::agent;

namespace {

constexpr std::string_view kUnifiedMounts =
    "22 1 0:21 / / rw - ext4 /dev/sda1 rw\n"
    "31 22 0:28 / /sys/fs/cgroup rw,nosuid shared:9 master:2 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr std::string_view kHybridMounts =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
constexpr std::string_view kHybridMembership = "9:name=systemd:/a\n4:memory:/b\n0::/user.slice/x y\n";

/// Forks a process that joins the group of this folder and waits.
pid_t start_in(int group_fd) {
    const pid_t pid = agent_test::fork_flushed();
    if (pid == 0) {
        if (join_control_group(group_fd) != 0) ::_exit(97);
        for (;;) ::pause();
    }
    return pid;
}

}  // namespace

TEST_CASE("the folder of a control group is found in pure and hybrid mounts", "[agent]") {
    CHECK(control_group_folder(kUnifiedMounts, "0::/job.scope\n") == "/sys/fs/cgroup/job.scope");
    CHECK(control_group_folder(kUnifiedMounts, "0::/\n") == "/sys/fs/cgroup");
    CHECK(control_group_folder(kHybridMounts, kHybridMembership) == "/sys/fs/cgroup/unified/user.slice/x y");
}

TEST_CASE("a mount that shows a part of the control groups counts if it shows this one", "[agent]") {
    const std::string_view bound = "5 1 0:38 /docker/a7 /mnt/c\\040g rw - cgroup2 none rw\n";
    CHECK(control_group_folder(bound, "0::/docker/a7/x\n") == "/mnt/c g/x");
    CHECK(control_group_folder(bound, "0::/docker/a7\n") == "/mnt/c g");
    CHECK(control_group_folder(bound, "0::/docker/a77\n") == std::nullopt);
    CHECK(control_group_folder(bound, "0::/\n") == std::nullopt);
}

TEST_CASE("without control groups of version 2 there is no folder", "[agent]") {
    CHECK(control_group_folder("", "0::/\n") == std::nullopt);
    CHECK(control_group_folder(kUnifiedMounts, "4:memory:/b\n") == std::nullopt);
    CHECK(control_group_folder(kUnifiedMounts, "") == std::nullopt);
    CHECK(control_group_folder("22 1\n- cgroup2\n\n", "0::/\n") == std::nullopt);
}

TEST_CASE("a fence group ends its processes at once, and is removed with the groups below it", "[agent]") {
    std::string path;
    {
        const Result<FenceGroup> fence = FenceGroup::make();
        if (!fence) {
            WARN("SKIPPED: " << fence.error().message);
            return;
        }
        path = fence->path();
        ControlGroup group(path.c_str());
        CHECK_FALSE(group.is_populated());
        const pid_t child = start_in(group.fd());
        REQUIRE(agent_test::eventually([&] { return group.is_populated(); }));
        std::vector<pid_t> listed(3);
        REQUIRE(group.list(listed.data(), 3) == 1);
        CHECK(listed[0] == child);
        const std::string inner_path = path + "/inner";
        std::filesystem::create_directory(inner_path);
        remove_control_group(path.c_str());
        CHECK(std::filesystem::exists(path));  // a process is left in it
        std::filesystem::create_directory(inner_path);
        ControlGroup inner(inner_path.c_str());
        const pid_t below = start_in(inner.fd());
        REQUIRE(agent_test::eventually([&] { return inner.is_populated(); }));
        listed.resize(static_cast<std::size_t>(group.list(listed.data(), 3)));
        CHECK_THAT(listed, Catch::UnorderedEquals(std::vector<pid_t>{child, below}));
        CHECK(group.list(listed.data(), 1) == 1);
        group.kill();
        CHECK(agent_test::wait_for(child).number == SIGKILL);
        CHECK(agent_test::wait_for(below).number == SIGKILL);
        CHECK(agent_test::eventually([&] { return !group.is_populated(); }));
    }
    CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("pids are listed whole, however the reads cut them", "[agent]") {
    std::string text;
    for (int pid = 100'000; pid < 102'000; ++pid) text += std::to_string(pid) + "\n";
    const UniqueFd file(::memfd_create("pids", MFD_CLOEXEC));
    const std::string with_cut_end = text + "77";
    REQUIRE(::write(file.get(), with_cut_end.data(), with_cut_end.size()) == std::ssize(with_cut_end));
    ::lseek(file.get(), 0, SEEK_SET);
    std::vector<pid_t> pids(3000);
    REQUIRE(read_pids(file.get(), pids.data(), 3000) == 2000);
    for (int i = 0; i < 2000; ++i) REQUIRE(pids[static_cast<std::size_t>(i)] == 100'000 + i);
}

TEST_CASE("a group counts as populated unless it is known to be empty", "[agent]") {
    const std::string path = std::filesystem::temp_directory_path() / fmt::format("not-a-group-{}", ::getpid());
    std::filesystem::create_directory(path);
    {
        ControlGroup group(path.c_str());
        CHECK_FALSE(group.is_populated());  // no such file, as after its removal
        std::filesystem::create_directory(path + "/cgroup.events");
        CHECK(group.is_populated());  // cannot be read
    }
    std::filesystem::remove_all(path);
}

TEST_CASE("a process is described by name, state and parent", "[agent]") {
    const pid_t child = agent_test::fork_flushed();
    if (child == 0) {
        for (;;) ::pause();
    }
    ::kill(child, SIGSTOP);
    CHECK(agent_test::eventually([&] { return look_at(child).state == 'T'; }));
    CHECK(look_at(child).parent == ::getpid());
    CHECK(std::string_view(look_at(child).name).starts_with("unit_agent"));
    CHECK_THAT(describe_process(child),
               Catch::StartsWith(std::to_string(child) + " (unit_agent") && Catch::Contains(", state T)"));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    CHECK(look_at(child).state == '\0');
    CHECK(look_at(child).parent == -1);
    CHECK(describe_process(child) == std::to_string(child));
}

TEST_CASE("a process whose first thread has ended is described by a thread that is left", "[agent]") {
    const pid_t child = agent_test::fork_flushed();
    if (child == 0) {
        std::thread([] {
            for (;;) ::pause();
        }).detach();
        ::syscall(SYS_exit, 0);  // ends this thread alone
    }
    REQUIRE(agent_test::eventually([&] { return process_state(child) == ProcessState::kEnded; }));
    CHECK(agent_test::eventually([&] { return look_at(child).state == 'S'; }));
    CHECK(look_at(child).parent == ::getpid());
    CHECK_THAT(describe_process(child), Catch::Contains(" (unit_agent") && Catch::Contains(", state S)"));
    const agent_test::Pipe err;
    const pid_t reporter = agent_test::fork_flushed();
    if (reporter == 0) {
        ::dup2(err.write_end.get(), STDERR_FILENO);
        report_survivors("test", {&child, 1});
        ::_exit(::write(STDERR_FILENO, "\n", 1) == 1 ? 0 : 1);
    }
    CHECK(agent_test::wait_for(reporter).success());
    CHECK_THAT(agent_test::read_line(err.read_end.get()), Catch::Contains("60 s after SIGKILL: state S; end it"));
    ::kill(child, SIGKILL);
    CHECK(agent_test::eventually([&] { return look_at(child).state == 'Z'; }));
    ::waitpid(child, nullptr, 0);
}
