// Wrappers between ddprun and a program of ddp::ddp that clear the environment, or parts of it.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

using Catch::Contains;
using e2e::Seconds;

namespace {

/// Runs two workers that train one step, each started by `wrapper`, a line of sh, which TRAIN follows.
e2e::Outcome run_through(const e2e::Sandbox& sandbox, const std::string& wrapper,
                         const std::vector<std::string>& options = {}) {
    std::vector<std::string> line{(e2e::bin() / "ddprun").string(), "--standalone", "--nproc-per-node", "2"};
    line.insert(line.end(), options.begin(), options.end());
    const std::string train = (e2e::bin() / "train").string();
    line.insert(line.end(), {"sh", "-c", fmt::format("exec {} {} --steps 1 --hidden1 8 --hidden2 8", wrapper, train)});
    return e2e::run(sandbox, {.argv = std::move(line), .directory = sandbox.path()}, Seconds(60));
}

constexpr const char* kKept =
    "RANK=$RANK WORLD_SIZE=$WORLD_SIZE LOCAL_RANK=$LOCAL_RANK LOCAL_WORLD_SIZE=$LOCAL_WORLD_SIZE "
    "MASTER_ADDR=$MASTER_ADDR MASTER_PORT=$MASTER_PORT";

}  // namespace

TEST_CASE("workers behind a wrapper that clears the environment do not train alone each", "[e2e]") {
    const e2e::Sandbox sandbox("cleared");
    const auto outcome = run_through(sandbox, "env -i", {"--max-restarts", "2"});
    CHECK(outcome.status.exit_code() == 93);
    CHECK_THAT(outcome.err,
               Contains("train: ddprun has started this process, but RANK, WORLD_SIZE and DDPRUN_GENERATION are not "
                        "set") &&
                   Contains("RANK=0 and WORLD_SIZE=1") && !Contains("restart 1 of 2"));
    CHECK(run_through(sandbox, "env -i RANK=0 WORLD_SIZE=1").status.exit_code() == 0);
    CHECK(run_through(sandbox, "env -u RANK -u WORLD_SIZE").status.exit_code() == 0);  // as the messages advise
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("workers that have lost their secret print what is missing, and a job without one prints nothing", "[e2e]") {
    const e2e::Sandbox sandbox("lost-secret");
    const std::string wrapper = GENERATE(std::string("env -u DDPRUN_SECRET_FD"), fmt::format("env -i {}", kKept));
    const auto outcome = run_through(sandbox, wrapper);
    CAPTURE(wrapper, outcome.out, outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    CHECK_THAT(outcome.err, Contains("no secret from ddprun (DDPRUN_SECRET_FD is not set)") &&
                                Contains("a wrapper that removes variables or closes descriptors"));
    const auto insecure = run_through(sandbox, "env", {"--insecure"});
    CHECK(insecure.status.exit_code() == 0);
    CHECK_THAT(insecure.err, !Contains("no secret"));
    CHECK(sandbox.leftovers() == "");
}
