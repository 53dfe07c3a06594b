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
