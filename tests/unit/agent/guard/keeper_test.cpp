// How guards and launchers recognise keepers, which they must not kill.
#include "agent/guard/keeper.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "agent/guard/descendants.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/agent/workers/processes.hpp"

using namespace ddprun::agent;
using namespace agent_test;

TEST_CASE("a keeper is recognised although ddprun was installed again", "[agent]") {
    const TemporaryDirectory directory;
    const std::string program = directory.path() / "ddprun-guard";
    std::filesystem::copy_file(AGENT_TEST_GUARD, program);
    const ProgramFile file = program_file(program.c_str());
    Pipe lifeline;
    const pid_t keeper = fork_flushed();
    if (keeper == 0) {
        lifeline.write_end.reset();
        ::dup2(lifeline.read_end.get(), kKeeperLifelineFd);
        ::fcntl(kKeeperLifelineFd, F_SETFD, 0);
        ::execl(program.c_str(), kKeeperName, "/nonexistent", nullptr);
        ::_exit(97);
    }
    REQUIRE(eventually([&] { return is_keeper(keeper, file); }));
    std::filesystem::remove(program);
    std::filesystem::copy_file(AGENT_TEST_GUARD, program);
    CHECK(is_keeper(keeper, file));
    CHECK_FALSE(is_keeper(keeper, program_file(program.c_str())));
    CHECK_FALSE(is_keeper(keeper, program_file("/nonexistent")));
    CHECK_FALSE(is_keeper(::getpid(), program_file("/proc/self/exe")));

    Spared spared;
    CHECK_FALSE(spared.contains(keeper));
    spared.guard_program = file;
    CHECK(spared.contains(keeper));
    CHECK_FALSE(spared.is_older(keeper));  // it is waited for
    spared.guard_program = {};
    spared.keeper = keeper;
    CHECK(spared.contains(keeper));
    lifeline.write_end.reset();
    CHECK(wait_for(keeper).success());
}

TEST_CASE("the file of a program is the same under each of its names", "[agent]") {
    CHECK(program_file("/proc/self/exe") == program_file(std::filesystem::read_symlink("/proc/self/exe").c_str()));
    CHECK(program_file("/proc/self/exe") != program_file(AGENT_TEST_GUARD));
    CHECK(program_file("/nonexistent").inode == 0);
}
