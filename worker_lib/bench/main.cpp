// ddp-bench: measures how fast the collectives are, and checks their results. Rank 0 prints one table for each.

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "ddp/ddp.hpp"
#include "worker_lib/bench/options.hpp"
#include "worker_lib/bench/output.hpp"
#include "worker_lib/bench/report.hpp"
#include "worker_lib/bench/run.hpp"

namespace {

using ddp::bench::JsonFile;
using ddp::bench::Options;
using ddp::bench::Output;
using ddp::bench::Row;

constexpr int kUsage = 2;
constexpr std::chrono::seconds kTimeForRank0{2};

/// Returns whether this process prints, before there is a group.
bool is_rank_0() {
    const char* rank = std::getenv("RANK");
    return rank == nullptr || std::string_view(rank) == "0";
}

/// Returns the number of ranks, before there is a group. An invalid WORLD_SIZE is reported by init_from_env.
int world_size() {
    const char* const text = std::getenv("WORLD_SIZE");
    return text == nullptr ? 1 : std::atoi(text);
}

std::string_view rewritten(const Options& options, bool host) {
    if (!options.rewrite) return host ? ", rewritten from 64 KiB on" : "";
    return *options.rewrite ? ", rewritten" : ", not rewritten";
}

std::string describe(const Options& options, const ddp::ProcessGroup& group) {
    const bool host = group.backend() != ddp::Backend::Nccl;
    const char* const memory = !host ? "on the device" : options.foreign ? "of the program" : "in the arena";
    return fmt::format("{} rank{}, {} backend, buffers {}{}, {} calls after {}{}", group.size(),
                       group.size() == 1 ? "" : "s", to_string(group.backend()), memory, rewritten(options, host),
                       options.iterations, options.warm_up,
                       host || options.rewrite.value_or(false) ? "" : ", queued and waited for together");
}

/// Prints the table and returns the error that ended it early; empty: none.
std::string run_and_print(ddp::ProcessGroup& group, ddp::detail::DeviceAccess* device, const Options& options,
                          std::vector<Row>& rows, Output& output) {
    const bool prints = group.rank() == 0 && options.json_file != "-";
    std::string problem;
    if (const std::string names = left_out(options, group.size()); prints && !names.empty())
        fmt::print(stderr, "ddp-bench: skipping {}\n", names);
    try {
        run(group, options, device, rows, [&](const Row& row, bool first) {
            if (prints && first) output.write(table_head(row.call.collective, describe(options, group)));
            if (prints) output.write(table_row(row));
        });
    } catch (const std::exception& error) {
        problem = error.what();
    }
    if (prints && !rows.empty()) output.write(table_foot(rows));
    return problem;
}

bool is_file(const std::string& json_file) { return !json_file.empty() && json_file != "-"; }

/// Writes the JSON of all measured rows, also after an error. Rank 0 only. Returns whether everything was written.
bool write_json(const std::string& json, const Options& options, Output& output, JsonFile& file) {
    std::string problem;
    if (options.json_file == "-") output.write(json);
    if (is_file(options.json_file)) problem = file.write(json);
    if (!problem.empty())
        fmt::print(stderr, "ddp-bench: cannot write --json '{}': {}. {}\n", options.json_file, problem,
                   output.failed() ? "The figures are lost" : "The table on stdout has the figures");
    return problem.empty() && !output.failed();
}

/// Returns the exit code. After an error rank 0 writes the measured rows before the launcher notices that a rank ended.
int measure_and_report(ddp::ProcessGroup& group, ddp::detail::DeviceAccess* device, const Options& options,
                       Output& output, JsonFile& file) {
    std::vector<Row> rows;
    const std::string error = run_and_print(group, device, options, rows, output);
    const bool speaks = group.rank() == 0;
    const bool written =
        !speaks || write_json(to_json(rows, describe(options, group), group.size(), error), options, output, file);
    if (!error.empty()) {
        fmt::print(stderr, "ddp-bench: {}\n", error);
        if (!speaks) std::this_thread::sleep_for(kTimeForRank0);
        return EXIT_FAILURE;
    }
    return written && (!speaks || ddp::bench::wrong_values(rows) == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    if (const auto exit_code = ddp::bench::parse_options(argc, argv, is_rank_0(), world_size(), options)) {
        // The launcher reports the first rank that ends, and stops the others. So the rank with the message ends first.
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
        const auto device =
            group.backend() == ddp::Backend::Nccl ? ddp::detail::open_device(context.local_rank()) : nullptr;
        return measure_and_report(group, device.get(), options, output, json_file);
    } catch (const std::exception& error) {
        fmt::print(stderr, "ddp-bench: {}\n", error.what());
        return EXIT_FAILURE;
    }
}
