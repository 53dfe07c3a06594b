// Whole steps captured into CUDA graphs, without a GPU: real processes under ddprun, over the fakes of NCCL and the
// CUDA driver.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/e2e/nccl.hpp"
#include "tests/e2e/process.hpp"

using Catch::Matchers::Contains;

namespace {

/// `faults`: of the fake NCCL, in tests/fake_gpu/nccl/checks.hpp.
std::string output_of(const std::string& mode, int ranks, const std::string& faults = "") {
    const e2e::Sandbox sandbox(fmt::format("captured-{}-{}", mode, ranks));
    const auto job = e2e::run(sandbox, e2e::nccl_job(ranks, {CAPTURED_STEPS_JOB, mode}, faults));
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 0);
    CHECK(sandbox.leftovers() == "");
    return job.out;
}

}  // namespace

TEST_CASE("replays of a captured step train with the bits and counts of its calls", "[e2e][sanitized]") {
    const int ranks = e2e::kSanitized ? 2 : GENERATE(2, 4);
    CHECK(output_of("equal", ranks) == "8 trainings\n");
}

TEST_CASE("a rank that is lost in a replay fails it in time, and leaves zeros", "[e2e][sanitized]") {
    // slow: an abort has the time for an optimiser of the graph, and the process does not end with 71
    const std::string mode = GENERATE("lost", "slow");
    const std::vector<std::string> lines = e2e::lines_of(output_of(mode, 3));
    REQUIRE(lines.size() == 2);
    for (const std::string& line : lines) {
        CHECK_THAT(line, Contains(": kept true, ok 0, 2 confirmed, soon, then "));
        CHECK_THAT(line, Contains("rank 2 (host "));
    }
}

TEST_CASE("an abort has the time for a replay behind a step by calls", "[e2e]") {
    const std::vector<std::string> lines = e2e::lines_of(output_of("queued", 3));
    REQUIRE(lines.size() == 2);
    for (const std::string& line : lines) CHECK_THAT(line, Contains("rank 2 (host "));
}

TEST_CASE("captures and replays that cannot be right are refused, and a capture stays valid", "[e2e][sanitized]") {
    const std::vector<std::string> lines = e2e::lines_of(output_of("refused", 2));
    const std::vector<std::string> expected{
        "capture: NCCL connects and allocates in its first operation",
        "capture: it needs a stream of its own, not a default stream",
        "replay: the CapturedStep is empty",
        "capture: a NoSync is active",
        "capture: a backward is going on",
        "capture: gradients of backwards without sync are accumulated",
        "begin_backward: its stream does not take part in the capture",
        "begin_backward: a captured step has one backward, which synchronises",
        "capture: a capture is going on",
        "parameter 'plain' was marked outside begin_backward",
        "its stream is being captured into a CUDA graph",
        "begin_backward: a captured step has one backward, and this is the second",
        "capture: a Join is active",
        "capture: this reducer has find_unused",
        "capture: the buckets may move in the next begin_backward",
        "replay: gradients were bound after the capture",
        "replay: another reducer has captured the step",
        "capture: the gradients are in host memory",
        "capture: this reducer has a hook",
        "capture: the function has made no backward",
        "this GradientReducer failed earlier",
    };
    REQUIRE(lines.size() == expected.size());
    for (std::size_t i = 0; i < lines.size(); ++i) CHECK_THAT(lines[i], Contains(expected[i]));
}

TEST_CASE("a function that makes no graph ends the reducer", "[e2e]") {
    const std::vector<std::string> lines = e2e::lines_of(output_of("broken", 2));
    REQUIRE(lines.size() == 4);
    CHECK_THAT(lines[0], Contains("capture: the function has not ended its backward. Call finish_backward in it"));
    CHECK_THAT(lines[1], Contains("failed earlier"));
    CHECK_THAT(lines[2], Contains("CUDA gives no graph of the captured step: unjoined work in another stream"));
    CHECK_THAT(lines[3], Contains("failed earlier"));
}

TEST_CASE("ranks that do not capture and replay alike are a mismatch", "[e2e][sanitized]") {
    CHECK_THAT(output_of("mixed", 2), Contains("'replay'") && Contains("'backward'"));
    CHECK_THAT(output_of("half", 2), Contains("'capture'") && Contains("'backward'"));
}

TEST_CASE("a rank that is lost during a capture fails it, when its function makes a call", "[e2e][sanitized]") {
    const std::vector<std::string> lines = e2e::lines_of(output_of("late", 3));
    REQUIRE(lines.size() == 2);
    for (const std::string& line : lines) CHECK_THAT(line, Contains("rank 2 (host "));
}

TEST_CASE("a rank that is lost while NCCL adds to a graph fails the capture", "[e2e]") {
    // Launch 10 of a rank is the second bucket of its capture: two barriers, two steps and a bucket come before.
    const std::vector<std::string> lines = e2e::lines_of(output_of("stuck", 3, "rank 0, 1: launch 10 never"));
    REQUIRE(lines.size() == 2);
    for (const std::string& line : lines) CHECK_THAT(line, Contains("rank 2 (host "));
}

TEST_CASE("an exception in a capture ends the reducer on all ranks", "[e2e]") {
    const std::string out = output_of("thrown", 2);
    CHECK_THAT(out, Contains("rank 1: the model is too large, then ") && Contains("failed earlier"));
    CHECK_THAT(out, Contains("rank 0: ") && Contains("rank 1 (host "));
}

TEST_CASE("a reducer ends before its captured step, also in a replay", "[e2e][sanitized]") {
    CHECK_THAT(output_of("outlived", 2),
               Contains("replay: another reducer has captured the step, or the one that has is gone"));
}

TEST_CASE("one reducer of a process has captured steps", "[e2e]") {
    const std::vector<std::string> lines = e2e::lines_of(output_of("second", 2));
    REQUIRE(lines.size() == 2);
    CHECK_THAT(lines[0], Contains("another reducer of CUDA device 0 has a captured step"));
    CHECK(lines[1] == "accepted");
}
