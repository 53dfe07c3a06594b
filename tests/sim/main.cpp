// sim_seeds: runs simulated clusters by seed, and prints the first broken invariant with the end of its trace.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <limits>
#include <stdexcept>

#include "common/job_limits.hpp"
#include "tests/sim/large_job.hpp"
#include "tests/sim/tally.hpp"

namespace {

using namespace ddprun::sim;

constexpr std::size_t kTail = 60;

int run(std::uint64_t first, std::uint64_t count, bool trace) {
    Tally tally;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        SimCluster cluster(seed);
        cluster.run_to_end();
        const std::size_t lines = trace ? std::numeric_limits<std::size_t>::max() : kTail;
        if (const std::string text = finding(seed, cluster, lines); !text.empty()) {
            fmt::print("{}\nAgain: sim_seeds --first {} --seeds 1 --trace\n", text, seed);
            return 1;
        }
        if (trace) fmt::print("seed {}: {}\n{}\n", seed, cluster.scenario(), cluster.last_lines(lines));
        tally.add(cluster);
    }
    fmt::print("no seed breaks an invariant. {}\n", tally.text());
    const std::string seldom = count < 300 ? "" : tally.too_seldom();
    fmt::print("{}", seldom);
    return seldom.empty() ? 0 : 1;
}

int run_large(int nodes) {
    const LargeJobTimes times = run_large_job(nodes);
    fmt::print("{} nodes. Model: {}.\n", nodes, large_job_model());
    fmt::print(
        "from a worker's death to the last stop order {:.1f} ms, to the last start of the next group {:.1f} ms\n",
        times.to_last_stop.count() / 1e3, times.to_last_start.count() / 1e3);
    fmt::print("CPU: {:.1f} s, of which all joins {:.1f} s\n", times.cpu.count() / 1e3,
               times.cpu_of_joins.count() / 1e3);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Runs simulated clusters by seed (tests/sim/README.md).");
    std::uint64_t first = 1;
    std::uint64_t count = 300;
    bool trace = false;
    app.add_option("--seeds", count, "How many seeds to run")->capture_default_str();
    app.add_option("--first", first, "The first of them")->capture_default_str();
    app.add_flag("--trace", trace, "Print the whole trace of each seed, instead of the end of one that fails");
    int nodes = 0;
    app.add_option("--nodes", nodes, "Instead: start a job of so many nodes, let one worker die, and print the times")
        ->check(CLI::Range(2, ddprun::kMaxNodes));
    CLI11_PARSE(app, argc, argv);
    try {
        if (nodes > 0) return run_large(nodes);
        return run(first, count, trace);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "sim_seeds: %s\n", error.what());
        return 70;
    }
}
