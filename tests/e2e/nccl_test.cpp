// Jobs on NCCL without a GPU: real processes under ddprun, over the fakes of NCCL and the CUDA driver.

#include "tests/e2e/nccl.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

using Catch::Matchers::Contains;
using e2e::Seconds;

TEST_CASE("on NCCL all collectives of eight ranks give the bits of the native backend", "[e2e][sanitized]") {
    const e2e::Sandbox sandbox("nccl-equal");
    std::vector<std::string> program{NCCL_JOB, "equal", "1001"};
    if (!e2e::kSanitized) program.push_back("1");
    const auto job = e2e::run(sandbox, e2e::nccl_job(8, program));
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 0);
    // Of each size: three reductions, with four operators for 7 types and five for the 4 floats, and ten moves of 13
    // types.
    CHECK(job.out == fmt::format("{} comparisons\n", (program.size() - 2) * (3 * (4 * 7 + 5 * 4) + 10 * 13)));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("on NCCL groups are split and shrunk, and send messages", "[e2e][sanitized]") {
    const e2e::Sandbox sandbox("nccl-groups");
    const auto job = e2e::run(sandbox, e2e::nccl_job(8, {NCCL_JOB, "groups"}));
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 0);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a program that leaves the choice gets NCCL, which DDPRUN_NCCL_LIBRARY names", "[e2e]") {
    const e2e::Sandbox sandbox("nccl-auto");
    auto command = e2e::nccl_job(4, {NCCL_JOB, "auto"});
    command.env["DDPRUN_NCCL_LIBRARY"] = std::string(FAKE_GPU_FOLDER) + "/libnccl.so.2";
    const auto job = e2e::run(sandbox, command);
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 0);
    for (int rank = 0; rank < 4; ++rank) CHECK_THAT(job.out, Contains(fmt::format("rank {}: nccl\n", rank)));
}

TEST_CASE("device memory that is passed without Device::Cuda is refused, with what to write", "[e2e]") {
    const e2e::Sandbox sandbox("nccl-undeclared");
    const auto job = e2e::run(sandbox, e2e::nccl_job(1, {NCCL_JOB, "undeclared"}));
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 0);
    CHECK_THAT(job.out, !Contains("no error"));
    const std::string way_out =
        " says host memory, and is memory of CUDA device 0. Pass Device::Cuda with it, as in Buffer(pointer, count, "
        "Device::Cuda), which needs a group of Backend::Nccl; or copy it to the host";
    for (const char* const what :
         {"all_reduce sum f32[4]: the buffer", "all_gather f32[4]: the output",
          "send f32[4] to rank 0, tag 0: the buffer", "all_reduce_coalesced(): buffer 0", "weighted_mean(): the buffer",
          "broadcast f32[4] root 0 'parameters': the buffer", "verify_parameters: buffer 0",
          "bind: parameter 'weights': the buffer", "cannot checkpoint 'weights': the buffer"}) {
        CHECK_THAT(job.out, Contains(what + way_out));
    }
    CHECK_THAT(job.out, Contains("stream: group 'world (host)'") &&
                            Contains("Synchronise the stream before the call, and leave it out; if it is device "
                                     "memory, pass Device::Cuda with it"));
}

TEST_CASE("a program that leaves the choice is warned once if its GPUs stay unused", "[e2e]") {
    const e2e::Sandbox sandbox("nccl-unused");
    auto command = e2e::nccl_job(2, {NCCL_JOB, "auto"});
    std::string why;
    SECTION("no NCCL") {
        command.env["DDPRUN_NCCL_LIBRARY"] = "/nonexistent";
        why = "DDPRUN_NCCL_LIBRARY=/nonexistent cannot be loaded";
    }
    SECTION("an old one") {
        command.env["DDP_FAKE_NCCL_VERSION"] = "21602";
        why = "NCCL 2.16.2 (" FAKE_GPU_FOLDER
              "/libnccl.so.2) is too old, 2.18.0 or newer is needed; "
              "DDPRUN_NCCL_LIBRARY names another file";
    }
    const auto job = e2e::run(sandbox, command);
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 0);
    const std::string line = "[ddp] NCCL is not usable by ranks 0 and 1 on host ";
    const auto found = job.err.find(line);
    REQUIRE(found != std::string::npos);
    CHECK(job.err.find(line, found + 1) == std::string::npos);
    CHECK_THAT(job.err, Contains(why) && Contains("Pass Backend::Nccl to have this refused"));
    for (int rank = 0; rank < 2; ++rank) CHECK_THAT(job.out, Contains(fmt::format("rank {}: native\n", rank)));
}

TEST_CASE("ranks with MIG slices of one GPU are refused before NCCL refuses them", "[e2e]") {
    const e2e::Sandbox sandbox("nccl-slices");
    auto command = e2e::nccl_job(2, {NCCL_JOB, "groups"});
    command.env["DDP_FAKE_CUDA_SLICES"] = "2";
    const auto job = e2e::run(sandbox, command);
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 1);
    CHECK_THAT(job.err, Contains("several ranks have MIG slices of the GPU at 0000:01:00"));
}

TEST_CASE("a blocking NCCL gives the same results", "[e2e][sanitized]") {
    const e2e::Sandbox sandbox("nccl-blocking");
    auto command = e2e::nccl_job(4, {NCCL_JOB, "groups"});
    command.env["DDP_FAKE_NCCL_VERSION"] = "21803";  // docs/design/013: blocking communicators
    const auto job = e2e::run(sandbox, command);
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 0);
}

TEST_CASE("ddp-bench measures NCCL and finds its results right", "[e2e][sanitized]") {
    const e2e::Sandbox sandbox("nccl-bench");
    const auto job =
        e2e::run(sandbox, e2e::nccl_job(4, {(e2e::bin() / "ddp-bench").string(), "--backend", "nccl", "-c", "all", "-b",
                                            "4k", "-e", "64k", "-f", "16", "-n", "2", "-w", "1"}));
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 0);
    CHECK_THAT(job.out, Contains("all_reduce"));
}
