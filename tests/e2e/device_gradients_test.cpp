// Gradients in device memory, without a GPU: real processes under ddprun, over the fakes of NCCL and the CUDA driver.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/e2e/nccl.hpp"
#include "tests/e2e/process.hpp"

using Catch::Matchers::Contains;

namespace {

/// `faults`: of the fake driver, in tests/fake_gpu/faults.hpp.
std::string output_of(const std::string& name, int ranks, const std::string& mode, const std::string& faults = "") {
    const e2e::Sandbox sandbox(name);
    const std::string folder = (sandbox.path() / "checkpoints").string();
    e2e::Command command = e2e::nccl_job(ranks, {REDUCER_JOB, mode, folder});
    if (!faults.empty()) command.env["DDP_FAKE_CUDA_FAULTS"] = faults;
    const auto job = e2e::run(sandbox, command);
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 0);
    CHECK(sandbox.leftovers() == "");
    return job.out;
}

}  // namespace

TEST_CASE("gradients in device memory get the bits of gradients in host memory", "[e2e][sanitized]") {
    const int ranks = e2e::kSanitized ? 2 : GENERATE(2, 4);
    CHECK(output_of(fmt::format("device-gradients-{}", ranks), ranks, "equal") == "84 trainings\n");
}

TEST_CASE("the exchange waits for slow gradients on several streams, and the caller's stream for the averages",
          "[e2e][sanitized]") {
    CHECK(output_of("device-order", 2, "order") == "24 trainings\n");
}

TEST_CASE("gradients of a group that is given up are zero on the device, and not confirmed", "[e2e][sanitized]") {
    const std::vector<std::string> lines = e2e::lines_of(output_of("device-lost", 3, "lost"));
    REQUIRE(lines.size() == 2);
    for (const std::string& line : lines) {
        CHECK_THAT(line, Contains(": zeros true, ok 0, 1 of 2 confirmed, then "));
        CHECK_THAT(line, Contains("rank 2 (host "));
    }
}

TEST_CASE("calls on wrong streams and with wrong memory are refused, and the backward goes on", "[e2e][sanitized]") {
    const std::vector<std::string> lines = e2e::lines_of(output_of("device-refused", 2, "refused"));
    REQUIRE(lines.size() == 12);
    const std::string captured =
        ": its stream is being captured into a CUDA graph, and calls of ddp can be captured only by "
        "GradientReducer::capture: make the call before or after the capture";
    CHECK_THAT(lines[0], Contains("begin_backward" + captured));
    CHECK_THAT(lines[1], Contains("zero_grads" + captured));
    CHECK_THAT(lines[2], Contains("begin_backward: the stream belongs to another device"));
    CHECK_THAT(lines[3], Contains("'a' is in the memory of a CUDA device, which the host cannot read"));
    CHECK_THAT(lines[4], Contains("'a' needs f32[4] in device memory, not f32[4] in host memory"));
    CHECK_THAT(lines[5], Contains("says Device::Cuda, but CUDA knows no memory there"));
    CHECK_THAT(lines[6], Contains("verify_parameters: the buffer 0 says Device::Cuda, but CUDA knows no memory there"));
    CHECK_THAT(lines[7], Contains("mark_ready" + captured));
    CHECK_THAT(lines[8], Contains("mark_unused: the stream belongs to another device"));
    CHECK_THAT(lines[9], Contains("finish_backward" + captured));
    CHECK_THAT(lines[10], Contains("ReducerOptions::device is Device::Cuda, but the group is of the native backend"));
    CHECK_THAT(lines[11], Contains("has gradients in host memory, but rank 1") && Contains("in device memory. Set "));
}

TEST_CASE("a captured stream whose gradient waits for its bucket is refused, and the capture stays valid", "[e2e]") {
    const std::vector<std::string> lines = e2e::lines_of(output_of("device-captured", 2, "captured"));
    REQUIRE(lines.size() == 4);
    CHECK_THAT(lines[0], Contains("mark_ready: a gradient of this backward waits for its bucket: its stream is being "
                                  "captured into a CUDA graph") &&
                             Contains("make the call before or after the capture"));
    CHECK(lines[1] == "valid");
    CHECK(lines[2] == "accepted");  // the mark was not taken before
    CHECK(lines[3] == "accepted");
}

TEST_CASE("a reducer that is destroyed after its backward is not lost for a rank that begins it later", "[e2e]") {
    const e2e::Sandbox sandbox("device-leaving");
    e2e::Command command = e2e::nccl_job(
        1, {"--nnodes", "3", "--local-nodes", "sh", "-c", "CUDA_VISIBLE_DEVICES=$RANK exec " REDUCER_JOB " leaving"});
    const auto job = e2e::run(sandbox, command);
    CAPTURE(job.err);
    CHECK(job.status.exit_code() == 0);
    CHECK(job.out == "accepted\naccepted\n");
}

TEST_CASE("reducers and compressions of a process load the kernels once", "[e2e]") {
    CHECK(output_of("device-sharing", 2, "sharing", "all: cuModuleLoadDataEx 2+ error 2") == "accepted\n");
}

TEST_CASE("parameters in device memory are hashed there", "[e2e]") {
    CHECK(output_of("device-verify", 2, "verify") == "accepted\n");
    CHECK_THAT(output_of("device-verify-fault", 2, "verify", "all: cuLaunchKernel 1+ error 719"),
               Contains("cuLaunchKernel of ddp_hash: unspecified launch failure"));
}

TEST_CASE("parameters in device memory are broadcast and compared behind their stream", "[e2e][sanitized]") {
    const std::vector<std::string> lines = e2e::lines_of(output_of("device-parameters", 2, "parameters"));
    REQUIRE(lines.size() == 4);
    CHECK(lines[0] == "accepted");
    CHECK_THAT(lines[1], Contains("'small' f32[5] with 0 at index 3") && Contains("with 1 at index 3"));
    CHECK_THAT(lines[2],
               Contains("'large' f32[9000000] with 0 at index 8999998") && Contains("with 1 at index 8999998"));
    CHECK_THAT(lines[3], Contains("CUDA knows no memory there"));
}

TEST_CASE("checkpoints of device memory are behind their stream, and hold what it computed", "[e2e][sanitized]") {
    CHECK(output_of("device-checkpoints", 2, "checkpoints") == "2 checkpoints\n");
}
