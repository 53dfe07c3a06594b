// train --device cuda: the training of the CPU on simulated GPUs, by the real launcher, NCCL backend and loaders.

#include <signal.h>

#include <filesystem>

#include "tests/catch.hpp"
#include "tests/e2e/training.hpp"

using Catch::Contains;

namespace {

constexpr int kSteps = e2e::kSanitized ? 8 : 40;

/// The folder of the fake libcuda.so.1, libnccl.so.2 and libcublas.so.13.
const std::filesystem::path kFakes = FAKE_GPU_FOLDER;

e2e::Training training_of(const e2e::Sandbox& sandbox, const std::string& name, int ranks, int steps = kSteps) {
    return {.launch = {"--nproc_per_node", std::to_string(ranks), "--max-restarts", "1"},
            .steps = steps,
            .checkpoint_dir = (sandbox.path() / (name + ".ckpt")).string(),
            .checkpoint_every = kSteps / 4,
            .losses = sandbox.path() / name,
            .more = {}};
}

e2e::Command on_cpu(const e2e::Training& training) { return e2e::command_of(training); }

/// The same on GPUs whose libraries are in `folder`.
e2e::Command on_cuda(e2e::Training training, const std::filesystem::path& folder = kFakes) {
    training.more.insert(training.more.end(), {"--device", "cuda"});
    e2e::Command command = e2e::command_of(training);
    command.env = {{"LD_LIBRARY_PATH", folder.string()}, {"DDPRUN_NCCL_LIBRARY", (folder / "libnccl.so.2").string()}};
    return command;
}

std::map<int, std::string> train(const e2e::Sandbox& sandbox, const e2e::Training& training,
                                 const e2e::Command& command) {
    const e2e::Outcome outcome = e2e::run(sandbox, command);
    INFO("stdout:\n" << outcome.out << "stderr:\n" << outcome.err);
    REQUIRE(outcome.status.exit_code() == 0);
    CHECK(e2e::final_json(outcome.out).at("restarts").to_number<int>() == 0);  // one would hide a sanitizer's report
    return e2e::read_losses(training.losses);
}

}  // namespace

TEST_CASE("training on GPUs has the losses and checkpoints of the CPU, bit for bit", "[e2e][sanitized]") {
    const int ranks = e2e::kSanitized ? 2 : GENERATE(1, 2, 4);
    CAPTURE(ranks);
    const e2e::Sandbox sandbox("cuda-equality");
    const e2e::Training cpu = training_of(sandbox, "cpu", ranks);
    const e2e::Training cuda = training_of(sandbox, "cuda", ranks);
    const auto expected = train(sandbox, cpu, on_cpu(cpu));
    CHECK(train(sandbox, cuda, on_cuda(cuda)) == expected);
    CHECK(expected.size() == kSteps);
    for (const int step : {kSteps / 2, 3 * kSteps / 4, kSteps}) {
        const std::string name = "step-" + std::to_string(step) + ".safetensors";
        CAPTURE(name);
        const std::string file = e2e::read_file(std::filesystem::path(cpu.checkpoint_dir) / name);
        CHECK(file.size() > 1000);
        CHECK((file == e2e::read_file(std::filesystem::path(cuda.checkpoint_dir) / name)));
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a training that changes between CPU and GPUs goes on as if it had not", "[e2e][sanitized]") {
    const bool begins_on_cuda = GENERATE(false, true);
    CAPTURE(begins_on_cuda);
    const e2e::Sandbox sandbox("cuda-change");
    const e2e::Training whole = training_of(sandbox, "whole", 2);
    const auto expected = train(sandbox, whole, on_cpu(whole));
    const e2e::Training first = training_of(sandbox, "changed", 2, kSteps / 2);
    const e2e::Training second = training_of(sandbox, "changed", 2);
    (void)train(sandbox, first, begins_on_cuda ? on_cuda(first) : on_cpu(first));
    CHECK(train(sandbox, second, begins_on_cuda ? on_cpu(second) : on_cuda(second)) == expected);
}

TEST_CASE("a worker that is killed on a GPU in the middle of a step leaves the curve as it is", "[e2e]") {
    const e2e::Sandbox sandbox("cuda-killed");
    const e2e::Training calm = training_of(sandbox, "calm", 2, 120);
    const auto expected = train(sandbox, calm, on_cpu(calm));
    const e2e::Training disturbed = training_of(sandbox, "disturbed", 2, 120);
    e2e::Process job(sandbox, on_cuda(disturbed));
    e2e::reach_step(job, disturbed, 25);
    const auto victim = e2e::worker(sandbox, 1);
    REQUIRE(victim);
    REQUIRE(::kill(*victim, SIGKILL) == 0);
    const int code = job.wait(e2e::Seconds(120)).exit_code();
    INFO("stdout:\n" << job.out() << "stderr:\n" << job.err());
    CHECK(code == 0);
    CHECK(e2e::final_json(job.out()).at("restarts").to_number<int>() == 1);
    CHECK(e2e::read_losses(disturbed.losses) == expected);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("train --device cuda names the library that it misses, and restarts nothing", "[e2e]") {
    const e2e::Sandbox sandbox("cuda-missing");
    const auto folder = sandbox.path() / "libraries";
    std::filesystem::create_directory(folder);
    std::string expected;
    SECTION("NCCL") { expected = "libnccl.so.2 cannot be loaded"; }
    SECTION("cuBLAS") {
        for (const char* name : {"libcuda.so.1", "libnccl.so.2"})
            std::filesystem::create_symlink(kFakes / name, folder / name);
        expected = "cuBLAS";  // one of the CUDA Toolkit may be here, but does not start without a GPU
    }
    const e2e::Training training = training_of(sandbox, "losses", 2);
    const e2e::Outcome outcome = e2e::run(sandbox, on_cuda(training, folder));
    INFO("stdout:\n" << outcome.out << "stderr:\n" << outcome.err);
    CHECK(outcome.status.exit_code() == 93);
    const auto line_with = [&](std::string_view text) {  // cause and way out are one message
        const auto at = outcome.err.find(text);
        const auto begin = at == std::string::npos ? at : outcome.err.rfind('\n', at) + 1;
        return begin == std::string::npos ? "" : outcome.err.substr(begin, outcome.err.find('\n', begin) - begin);
    };
    CHECK_THAT(line_with(expected), Contains("pass --device cpu"));
    CHECK(sandbox.leftovers() == "");
}
