// The job of the README: real text, 2 emulated nodes with 4 workers each.

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <filesystem>
#include <map>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/e2e/training.hpp"

namespace {

/// Returns the proportional set size of these processes together, in bytes: shared pages count once.
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

/// Returns how much of a rank's backward was left when a step's first bucket was launched: the median of its timeline.
double share_left_at_launch(const boost::json::array& events) {
    std::vector<std::pair<double, double>> backwards;  // for each step: its end and its length
    std::map<std::int64_t, double> launches;
    for (const auto& event : events) {
        const auto& fields = event.as_object();
        if (fields.at("name").as_string() == "backward") {
            const double duration = fields.at("dur").to_number<double>();
            backwards.emplace_back(fields.at("ts").to_number<double>() + duration, duration);
        } else if (fields.at("ph").as_string() == "b") {
            const auto step = fields.at("args").at("step").to_number<std::int64_t>();
            const auto first = launches.emplace(step, 1e300).first;
            first->second = std::min(first->second, fields.at("ts").to_number<double>());
        }
    }
    REQUIRE(!backwards.empty());
    REQUIRE(launches.size() == backwards.size());
    std::vector<double> shares;
    for (auto backward = backwards.begin(); const auto& [step, launch] : launches) {
        shares.push_back((backward->first - launch) / backward->second);
        ++backward;
    }
    std::ranges::sort(shares);
    return shares[shares.size() / 2];
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

TEST_CASE("the same line typed in two terminals forms one job, and the first hosts the daemon", "[e2e]") {
    const e2e::Sandbox sandbox("two-terminals");
    // A free port instead of the default 29400, so that no other job on this machine is disturbed.
    e2e::Training training{.steps = 5, .losses = sandbox.path() / "losses"};
    training.launch = {
        "--nnodes", "2", "--nproc_per_node", "2", "--rdzv-endpoint", fmt::format("127.0.0.1:{}", e2e::free_port())};
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

TEST_CASE("gradients travel during backward, and with --no-overlap after it", "[e2e]") {
    const e2e::Sandbox sandbox("overlap");
    const auto share_left = [&](const std::string& options) {
        const auto outcome = e2e::run(
            sandbox, {.argv = {"sh", "-c",
                               "DDP_TIMELINE=trace.json exec " + (e2e::bin() / "ddprun").string() +
                                   " --nproc_per_node 2 train --steps 9 --global-batch 32 --progress none " + options},
                      .directory = sandbox.path()});
        INFO(outcome.err);
        REQUIRE(outcome.status.exit_code() == 0);
        const auto exposed_ms = e2e::final_json(outcome.out).at("exposed_ms").to_number<double>();
        CHECK(exposed_ms > 0);
        return share_left_at_launch(
            boost::json::parse(e2e::read_file(sandbox.path() / "trace.rank-0.json")).as_array());
    };
    const double overlapped = share_left("");
    const double after = share_left("--no-overlap");
    CAPTURE(overlapped, after);
    CHECK(after < overlapped / 3);
    CHECK(sandbox.leftovers() == "");
}
