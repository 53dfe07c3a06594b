#include "agent/workers/older_processes.hpp"

#include <string>

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::string_literals;

TEST_CASE("a process of an older generation is recognized by its environment", "[agent]") {
    const std::string mine = "A=b\0DDPRUN_SESSION=s1\0DDPRUN_GENERATION=3\0"s;
    CHECK(belongs_to_older_group(mine, "s1", Generation{4}));
    CHECK_FALSE(belongs_to_older_group(mine, "s1", Generation{3}));
    CHECK_FALSE(belongs_to_older_group(mine, "s1", Generation{2}));
}

TEST_CASE("a process of another job, or of none, is never one of an older generation", "[agent]") {
    const Generation newest{100};
    CHECK_FALSE(belongs_to_older_group("DDPRUN_SESSION=s2\0DDPRUN_GENERATION=3\0"s, "s1", newest));
    CHECK_FALSE(belongs_to_older_group("DDPRUN_SESSION=s11\0DDPRUN_GENERATION=3\0"s, "s1", newest));
    CHECK_FALSE(belongs_to_older_group("DDPRUN_RUN_ID=s1\0DDPRUN_GENERATION=3\0"s, "s1", newest));
    CHECK_FALSE(belongs_to_older_group("X_DDPRUN_SESSION=s1\0DDPRUN_GENERATION=3\0"s, "s1", newest));
    CHECK_FALSE(belongs_to_older_group("DDPRUN_SESSION=s1\0"s, "s1", newest));
    CHECK_FALSE(belongs_to_older_group("DDPRUN_SESSION=s1\0DDPRUN_GENERATION=3x\0"s, "s1", newest));
    CHECK_FALSE(belongs_to_older_group("DDPRUN_SESSION=s1\0DDPRUN_GENERATION="s, "s1", newest));
    CHECK_FALSE(belongs_to_older_group("", "s1", newest));
}

TEST_CASE("a process of this step runs in the group of its agent or in a fence below that", "[agent]") {
    const JobStep own{"71", "/slurm/job_71/step_0"};
    CHECK(is_in_step({"71", "/slurm/job_71/step_0"}, own));
    CHECK(is_in_step({"71", "/slurm/job_71/step_0/ddprun-5-a7"}, own));
    CHECK(is_in_step({"71", "/slurm/job_71/step_0/ddprun-5-a7/inner"}, own));
    CHECK(is_in_step({"", "/ddprun-5-a7"}, {"", "/"}));
    CHECK(is_in_step({"", ""}, {"", ""}));
}

TEST_CASE("work that a worker has submitted does not belong to this step", "[agent]") {
    const JobStep own{"71", "/slurm/job_71/step_0"};
    CHECK_FALSE(is_in_step({"72", "/slurm/job_71/step_0"}, own));  // sbatch
    CHECK_FALSE(is_in_step({"", "/slurm/job_71/step_0"}, own));
    CHECK_FALSE(is_in_step({"71", "/user.slice/run-1.scope"}, own));  // systemd-run
    CHECK_FALSE(is_in_step({"71", "/slurm/job_71/step_01"}, own));
    CHECK_FALSE(is_in_step({"71", "/slurm/job_71/step_0/other"}, own));
    CHECK_FALSE(is_in_step({"", "/run-1.scope"}, {"", "/"}));
}
