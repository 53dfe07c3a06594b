#include "agent/workers/older_processes.hpp"

#include <string>

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::string_literals;

TEST_CASE("a process of an older generation is recognized by its environment", "[agent]") {
    const std::string mine = "A=b\0DDPRUN_SESSION=s1\0DDPRUN_GENERATION=3\0"s;
    CHECK(belongs_to_older_group(mine, {"s1", "", Generation{4}}));
    CHECK_FALSE(belongs_to_older_group(mine, {"s1", "", Generation{3}}));
    CHECK_FALSE(belongs_to_older_group(mine, {"s1", "", Generation{2}}));
}

TEST_CASE("a process of another job, or of none, is never one of an older generation", "[agent]") {
    const JobStep step{"s1", "", Generation{100}};
    CHECK_FALSE(belongs_to_older_group("DDPRUN_SESSION=s2\0DDPRUN_GENERATION=3\0"s, step));
    CHECK_FALSE(belongs_to_older_group("DDPRUN_SESSION=s11\0DDPRUN_GENERATION=3\0"s, step));
    CHECK_FALSE(belongs_to_older_group("DDPRUN_RUN_ID=s1\0DDPRUN_GENERATION=3\0"s, step));
    CHECK_FALSE(belongs_to_older_group("X_DDPRUN_SESSION=s1\0DDPRUN_GENERATION=3\0"s, step));
    CHECK_FALSE(belongs_to_older_group("DDPRUN_SESSION=s1\0"s, step));
    CHECK_FALSE(belongs_to_older_group("DDPRUN_SESSION=s1\0DDPRUN_GENERATION=3x\0"s, step));
    CHECK_FALSE(belongs_to_older_group("DDPRUN_SESSION=s1\0DDPRUN_GENERATION="s, step));
    CHECK_FALSE(belongs_to_older_group("", step));
}

TEST_CASE("a process that another job of Slurm runs does not belong to this step", "[agent]") {
    const std::string submitted = "DDPRUN_SESSION=s1\0DDPRUN_GENERATION=3\0SLURM_JOB_ID=72\0"s;  // by sbatch
    CHECK(belongs_to_older_group(submitted, {"s1", "72", Generation{4}}));
    CHECK_FALSE(belongs_to_older_group(submitted, {"s1", "71", Generation{4}}));
    CHECK_FALSE(belongs_to_older_group(submitted, {"s1", "", Generation{4}}));
    CHECK_FALSE(belongs_to_older_group("DDPRUN_SESSION=s1\0DDPRUN_GENERATION=3\0"s, {"s1", "71", Generation{4}}));
}

TEST_CASE("a process of this step runs in the group of its agent or in a fence below that", "[agent]") {
    const std::string_view own = "/slurm/job_71/step_0";
    CHECK(is_in_step("/slurm/job_71/step_0", own));
    CHECK(is_in_step("/slurm/job_71/step_0/ddprun-5-a7", own));
    CHECK(is_in_step("/slurm/job_71/step_0/ddprun-5-a7/inner", own));
    CHECK(is_in_step("/ddprun-5-a7", "/"));
    CHECK(is_in_step("", ""));
}

TEST_CASE("another login session of the same user is the same step", "[agent]") {
    const std::string_view own = "/user.slice/user-7.slice/session-12.scope";
    CHECK(is_in_step("/user.slice/user-7.slice/session-9.scope", own));
    CHECK(is_in_step("/user.slice/user-7.slice/session-c2.scope/ddprun-5-a7", own));
    CHECK_FALSE(is_in_step("/user.slice/user-8.slice/session-12.scope", own));
    CHECK_FALSE(is_in_step("/user.slice/user-7.slice/session-9.slice", own));
    CHECK_FALSE(is_in_step("/user.slice/user-7.slice/session-9.scope/other", own));
    CHECK_FALSE(is_in_step("/user.slice/user-7.slice", own));
    CHECK_FALSE(is_in_step("/user.slice/user-7.slice/user@7.service/app.slice/run-1.scope", own));  // systemd-run
}

TEST_CASE("work that a worker has started elsewhere does not belong to this step", "[agent]") {
    const std::string_view own = "/slurm/job_71/step_0";
    CHECK_FALSE(is_in_step("/user.slice/run-1.scope", own));  // systemd-run
    CHECK_FALSE(is_in_step("/slurm/job_71/step_01", own));
    CHECK_FALSE(is_in_step("/slurm/job_71/step_0/other", own));
    CHECK_FALSE(is_in_step("/run-1.scope", "/"));
}
