// What the README promises: the main job on real text, 2 emulated nodes with 4 workers each.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/e2e/training.hpp"

namespace {

/// Proportional set size of all of these processes together, in bytes: shared pages count once.
std::size_t memory_bytes(const e2e::Sandbox& sandbox) {
    std::size_t kib = 0;
    for (const pid_t pid : sandbox.pids()) {
        std::istringstream lines(e2e::read_file(fmt::format("/proc/{}/smaps_rollup", pid)));
        for (std::string line; std::getline(lines, line);) {
            if (line.starts_with("Pss:")) kib += std::stoul(line.substr(4));
        }
    }
    return kib * 1024;
}

}  // namespace

TEST_CASE("the README's job trains on 8 ranks, in less than 4 GB, and leaves nothing behind", "[e2e]") {
    const e2e::Sandbox sandbox("main-job");
    std::size_t peak_bytes = 0;
    e2e::Process job(sandbox, {.argv = {(e2e::bin() / "ddprun").string(), "--nnodes", "2", "--nproc_per_node", "4",
                                        "--local-nodes", "train"}});
    const bool ended = e2e::eventually(e2e::Seconds(240), [&] {
        peak_bytes = std::max(peak_bytes, memory_bytes(sandbox));
        return !job.running();
    });
    INFO("stdout:\n" << job.out() << "stderr:\n" << job.err());
    REQUIRE(ended);
    CHECK(job.wait(e2e::Seconds(1)).exit_code() == 0);

    const auto result = e2e::final_json(job.out());
    CHECK(result.at("world_size").to_number<int>() == 8);
    CHECK(result.at("restarts").to_number<int>() == 0);
    CHECK(result.at("loss_last").to_number<double>() < 0.7 * result.at("loss_first").to_number<double>());
    CHECK(result.at("samples_per_s").to_number<double>() > 0);
    CHECK(peak_bytes < std::size_t{4} << 30);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the same line typed in two terminals forms one job, the first of which hosts the daemon", "[e2e]") {
    const e2e::Sandbox sandbox("two-terminals");
    // A free port instead of the default 29400, so that a job of somebody else on this machine is not disturbed.
    e2e::Training training{.steps = 5, .losses = sandbox.path() / "losses"};
    training.launch = {"--nnodes", "2", "--nproc_per_node", "2", "--rdzv-endpoint",
                       fmt::format("127.0.0.1:{}", e2e::free_port())};
    e2e::Process first(sandbox, e2e::command_of(training));
    e2e::Process second(sandbox, e2e::command_of(training));
    const int first_code = first.wait(e2e::Seconds(60)).exit_code();
    const int second_code = second.wait(e2e::Seconds(60)).exit_code();
    INFO("first:\n" << first.out() << first.err() << "second:\n" << second.out() << second.err());
    CHECK(first_code == 0);
    CHECK(second_code == 0);
    // Rank 0 is on one of the two, and only it ends with the result.
    const std::string both = first.out() + second.out();
    CHECK(e2e::final_json(both).at("world_size").to_number<int>() == 4);
    CHECK(e2e::read_losses(training.losses).size() == 5);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a trainer started with closed standard streams keeps them out of its own files", "[e2e]") {
    const e2e::Sandbox sandbox("closed-streams");
    const std::string train = (e2e::bin() / "train").string();
    const auto run = [&](const std::string& closed) {
        return e2e::run(sandbox, {.argv = {"sh", "-c",
                                           "DDP_TIMELINE=trace.json exec " + train +
                                               " --steps 2 --progress plain --loss-log losses " + closed},
                                  .directory = sandbox.path()});
    };
    for (const std::string closed : {"<&- >&- 2>&-", ">&-", ">&- 2>&-"}) {
        CAPTURE(closed);
        std::filesystem::remove(sandbox.path() / "losses");
        CHECK(run(closed).status.exit_code() == 0);
        const std::string losses = e2e::read_file(sandbox.path() / "losses");
        CHECK(std::ranges::count(losses, '\n') == 2);
        CHECK(e2e::read_file(sandbox.path() / "trace.rank-0.json").starts_with("[{\"ph\""));
    }
    CHECK(sandbox.leftovers() == "");
}
