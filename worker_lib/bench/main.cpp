// ddp-bench: how fast the collectives are, and whether they are right. One table for each, by rank 0.

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "ddp/ddp.hpp"
#include "worker_lib/bench/measure.hpp"
#include "worker_lib/bench/options.hpp"
#include "worker_lib/bench/output.hpp"
#include "worker_lib/bench/report.hpp"

namespace {

using ddp::bench::Call;
using ddp::bench::JsonFile;
using ddp::bench::Options;
using ddp::bench::Output;
using ddp::bench::Row;

constexpr int kUsage = 2;
constexpr std::chrono::seconds kTimeForRank0{2};

/// Before there is a group: whether this process is the one that prints.
bool is_rank_0() {
    const char* rank = std::getenv("RANK");
    return rank == nullptr || std::string_view(rank) == "0";
}

std::string describe(const Options& options, const ddp::ProcessGroup& group) {
    return fmt::format("{} rank{}, {} backend, buffers {}{}, {} calls after {}", group.size(),
                       group.size() == 1 ? "" : "s", to_string(group.backend()),
                       options.foreign ? "of our own" : "in the arena", options.rewrite ? ", rewritten" : "",
                       options.iterations, options.warm_up);
}

Row measure_row(ddp::ProcessGroup& group, const ddp::bench::Memory& memory, const Options& options, Call call) {
    Row row{.call = call, .bytes = call.count * ddp::size_of(call.dtype)};
    if (has_out_of_place(call.collective)) row.out_of_place = measure(group, call, memory, options);
    call.in_place = true;
    if (has_in_place(call.collective)) row.in_place = measure(group, call, memory, options);
    return row;
}

/// A whole number of parts for all ranks, as nccl-tests rounds it.
std::size_t count_of(ddp::bench::Collective collective, std::size_t bytes, const Options& options, int ranks) {
    const std::size_t count = bytes / ddp::size_of(options.dtype);
    return !has_parts(collective) ? count : count / static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks);
}

std::vector<Row> run(ddp::ProcessGroup& group, const Options& options, Output& output) {
    const bool prints = group.rank() == 0 && options.json_file != "-";
    const ddp::bench::Memory memory(group, options.max_bytes, options.foreign);
    std::vector<Row> rows;
    for (const auto collective : options.collectives) {
        if (prints) output.write(table_head(collective, describe(options, group)));
        for (const std::size_t bytes : sizes(options)) {
            const Call call{.collective = collective,
                            .count = count_of(collective, bytes, options, group.size()),
                            .dtype = options.dtype,
                            .op = options.reduce_op,
                            .root = options.root,
                            .in_place = false,
                            .rank = group.rank(),
                            .ranks = group.size()};
            rows.push_back(measure_row(group, memory, options, call));
            if (prints) output.write(table_row(rows.back()));
        }
    }
    if (prints) output.write(table_foot(rows));
    return rows;
}

/// Every rank comes here. The others leave some time after they see that rank 0 is gone; the launcher stops them
/// sooner.
[[noreturn]] void refuse_root(ddp::ProcessGroup& group, int root) {
    if (group.rank() == 0) {
        fmt::print(stderr, "ddp-bench: --root {}: the ranks are 0 to {}\n", root, group.size() - 1);
        std::_Exit(kUsage);  // without a goodbye, so that it is the first
    }
    try {
        group.barrier({.timeout = kTimeForRank0, .tag = "leaving"}).wait();
    } catch (const ddp::Error&) {
        std::this_thread::sleep_for(kTimeForRank0);  // on another node the news of this exit could be the faster one
    }
    std::_Exit(kUsage);
}

bool is_file(const std::string& json_file) { return !json_file.empty() && json_file != "-"; }

/// Rank 0, with what all have measured. The exit code.
int report(const std::vector<Row>& rows, const std::string& about, const Options& options, Output& output,
           JsonFile& file) {
    std::string problem;
    if (options.json_file == "-") output.write(to_json(rows, about));
    if (is_file(options.json_file)) problem = file.write(to_json(rows, about));
    if (!problem.empty())
        fmt::print(stderr, "ddp-bench: cannot write --json '{}': {}. {}\n", options.json_file, problem,
                   output.failed() ? "The figures are lost" : "The table on stdout has the figures");
    return problem.empty() && !output.failed() && ddp::bench::wrong_values(rows) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    if (const auto exit_code = ddp::bench::parse_options(argc, argv, is_rank_0(), options)) {
        // The launcher reports the first rank that leaves, and stops the others: let it be the one that has spoken.
        if (*exit_code != 0 && !is_rank_0()) std::this_thread::sleep_for(kTimeForRank0);
        return *exit_code;
    }
    Output output;
    JsonFile json_file;
    if (is_rank_0() && is_file(options.json_file)) {
        if (const std::string problem = json_file.open(options.json_file); !problem.empty()) {
            fmt::print(stderr,
                       "ddp-bench: cannot write --json '{}': {}. Pass a file that can be written, or - for stdout\n",
                       options.json_file, problem);
            return kUsage;  // the other ranks wait for this one, and the launcher stops them
        }
    }
    try {
        ddp::Context context = ddp::init_from_env({.backend = options.backend});
        ddp::ProcessGroup& group = context.world();
        if (options.root >= group.size()) refuse_root(group, options.root);
        const std::vector<Row> rows = run(group, options, output);
        if (group.rank() != 0) return EXIT_SUCCESS;
        return report(rows, describe(options, group), options, output, json_file);
    } catch (const std::exception& error) {
        fmt::print(stderr, "ddp-bench: {}\n", error.what());
        return EXIT_FAILURE;
    }
}
