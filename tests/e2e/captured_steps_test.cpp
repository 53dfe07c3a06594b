// Whole steps captured into CUDA graphs, without a GPU: real processes under ddprun, over the fakes of NCCL and the
// CUDA driver.

#include <fmt/format.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/e2e/nccl.hpp"
#include "tests/e2e/process.hpp"

using Catch::Matchers::Contains;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

std::string output_of(const std::string& mode, int ranks) {
    const e2e::Sandbox sandbox(fmt::format("captured-{}-{}", mode, ranks));
    const auto job = e2e::run(sandbox, e2e::nccl_job(ranks, {CAPTURED_STEPS_JOB, mode}));
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
    const std::vector<std::string> lines = lines_of(output_of(mode, 3));
    REQUIRE(lines.size() == 2);
    for (const std::string& line : lines) {
        CHECK_THAT(line, Contains(": kept true, ok 0, 2 confirmed, soon, then "));
        CHECK_THAT(line, Contains("rank 2 (host "));
    }
}

TEST_CASE("captures and replays that cannot be right are refused, and a capture stays valid", "[e2e][sanitized]") {
    const std::vector<std::string> lines = lines_of(output_of("refused", 2));
    REQUIRE(lines.size() == 17);
    CHECK_THAT(lines[0], Contains("capture: NCCL connects and allocates in its first operation"));
    CHECK_THAT(lines[1], Contains("capture: CUDA captures no default stream"));
    CHECK_THAT(lines[2], Contains("replay: the CapturedStep is empty"));
    CHECK_THAT(lines[3], Contains("capture: a NoSync is active"));
    CHECK_THAT(lines[4], Contains("capture: a backward is going on"));
    CHECK_THAT(lines[5], Contains("capture: gradients of backwards without sync are accumulated"));
    CHECK_THAT(lines[6], Contains("begin_backward: its stream does not take part in the capture"));
    CHECK_THAT(lines[7], Contains("begin_backward: a captured step has one backward, which synchronises"));
    CHECK_THAT(lines[8], Contains("capture: a capture is going on"));
    CHECK_THAT(lines[9], Contains("its stream is being captured into a CUDA graph"));
    CHECK_THAT(lines[10], Contains("begin_backward: a captured step has one backward, and this is the second"));
    CHECK_THAT(lines[11], Contains("replay: gradients were bound after the capture"));
    CHECK_THAT(lines[12], Contains("replay: the step was captured by another reducer"));
    CHECK_THAT(lines[13], Contains("capture: the gradients are in host memory"));
    CHECK_THAT(lines[14], Contains("capture: this reducer has a hook"));
    CHECK_THAT(lines[15], Contains("capture: the function has made no backward"));
    CHECK_THAT(lines[16], Contains("this GradientReducer failed earlier"));
}

TEST_CASE("an exception in a capture ends the reducer on all ranks", "[e2e]") {
    const std::string out = output_of("thrown", 2);
    CHECK_THAT(out, Contains("rank 1: the model is too large, then ") && Contains("failed earlier"));
    CHECK_THAT(out, Contains("rank 0: ") && Contains("rank 1 (host "));
}

TEST_CASE("a reducer ends before its captured step, also in a replay", "[e2e][sanitized]") {
    CHECK_THAT(output_of("outlived", 2), Contains("replay: the step was captured by another reducer"));
}

TEST_CASE("one reducer of a process has captured steps", "[e2e]") {
    const std::vector<std::string> lines = lines_of(output_of("second", 2));
    REQUIRE(lines.size() == 2);
    CHECK_THAT(lines[0], Contains("another reducer of CUDA device 0 has a captured step"));
    CHECK(lines[1] == "accepted");
}
