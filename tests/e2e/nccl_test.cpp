// Jobs on NCCL without a GPU: real processes under ddprun, over the fakes of NCCL and the CUDA driver.

#include "tests/e2e/nccl.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

using Catch::Matchers::Contains;
using e2e::Seconds;

TEST_CASE("on NCCL all collectives of eight ranks give the bits of the native backend", "[e2e]") {
    const e2e::Sandbox sandbox("nccl-equal");
    const auto job = e2e::run(sandbox, e2e::nccl_job(8, {NCCL_JOB, "equal"}));
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 0);
    // Of two sizes: three reductions, with four operators for 7 types and five for the 4 floats, and ten moves of 13
    // types.
    CHECK(job.out == fmt::format("{} comparisons\n", 2 * (3 * (4 * 7 + 5 * 4) + 10 * 13)));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("on NCCL groups are split and shrunk, and send messages", "[e2e]") {
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

TEST_CASE("a blocking NCCL gives the same results", "[e2e]") {
    const e2e::Sandbox sandbox("nccl-blocking");
    auto command = e2e::nccl_job(4, {NCCL_JOB, "groups"});
    command.env["DDP_FAKE_NCCL_VERSION"] = "21803";  // docs/design/013: blocking communicators
    const auto job = e2e::run(sandbox, command);
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 0);
}

TEST_CASE("ddp-bench measures NCCL and finds its results right", "[e2e]") {
    const e2e::Sandbox sandbox("nccl-bench");
    const auto job =
        e2e::run(sandbox, e2e::nccl_job(4, {(e2e::bin() / "ddp-bench").string(), "--backend", "nccl", "-c", "all", "-b",
                                            "4k", "-e", "64k", "-f", "16", "-n", "2", "-w", "1"}));
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 0);
    CHECK_THAT(job.out, Contains("all_reduce"));
}
