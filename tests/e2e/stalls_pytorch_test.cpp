// A dump of a stalled job, read by PyTorch.

#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"
#include "tests/e2e/stalls.hpp"

using Catch::Contains;
using e2e::line;

namespace {

/// The one that scripts/interop-torch has installed, or the system's; empty: neither has it.
std::string python_with_flight_recorder() {
    const char* const cache = std::getenv("XDG_CACHE_HOME");
    const char* const home = std::getenv("HOME");
    const std::filesystem::path folder = cache != nullptr
                                             ? std::filesystem::path(cache)
                                             : std::filesystem::path(home != nullptr ? home : "/") / ".cache";
    const e2e::Sandbox sandbox("flight-recorder");
    for (const std::string& python : {(folder / "ddprun/torch-venv/bin/python").string(), std::string("python3")}) {
        const bool installed = python == "python3" || std::filesystem::exists(python);
        const std::vector<std::string> look{python, "-c", "from torch.distributed.flight_recorder import fr_trace"};
        if (installed && e2e::run(sandbox, {.argv = look}, e2e::Seconds(120)).status.success()) return python;
    }
    return "";
}

}  // namespace

TEST_CASE("PyTorch's analysis of a dump names the rank that has not arrived, and the operation", "[e2e]") {
    const std::string python = python_with_flight_recorder();
    if (python.empty()) {
        WARN(
            "SKIPPED: no PyTorch with torch.distributed.flight_recorder here (scripts/interop-torch --keep installs "
            "one)");
        return;
    }
    const e2e::Sandbox sandbox("stall-analysis");
    e2e::Process job(sandbox,
                     {.argv = line({"--nnodes", "2", "--nproc_per_node", "1", "--local-nodes", "--stall-warning", "2",
                                    "--rdzv-endpoint", fmt::format("127.0.0.1:{}", e2e::free_port())},
                                   {STALLING, "posted"})});
    const std::string advice = "ddpctl dump --rdzv-endpoint ";
    REQUIRE(e2e::eventually(e2e::Seconds(60), [&] { return job.err().find(advice) != std::string::npos; }));
    const auto at = job.err().find(advice) + advice.size();
    const std::string endpoint = job.err().substr(at, job.err().find(']', at) - at);
    const std::string folder = (sandbox.path() / "records").string();
    const auto dump = e2e::run(
        sandbox, {.argv = {(e2e::bin() / "ddpctl").string(), "dump", "--rdzv-endpoint", endpoint, "--output", folder}});
    INFO(dump.out << dump.err);
    CHECK(dump.status.success());
    job.signal(SIGINT);
    CHECK(job.wait(e2e::Seconds(60)).exit_code() == 130);

    const auto said =
        e2e::run(sandbox, {.argv = {FR_TRACE, folder}, .env = {{"PYTHON_EXEC", python}}}, e2e::Seconds(120));
    const std::string text = said.out + said.err;
    INFO(text);
    CHECK(said.status.success());
    const auto collective = text.find("collective: nccl:all_reduce");
    REQUIRE(collective != std::string::npos);
    CHECK_THAT(text.substr(collective),
               Catch::StartsWith("collective: nccl:all_reduce\nmissing ranks: {1}\ninput sizes: "
                                 "[[1000]]\noutput sizes: [[1000]]\nworld size: 2\nexpected "
                                 "ranks: {0, 1}\ncollective state: started\n"));
    CHECK_THAT(text, Contains("collective: nccl:recv 1<-0\nmissing ranks: {0}\ninput sizes: [[1]]\n"));
    CHECK(sandbox.leftovers() == "");
}
