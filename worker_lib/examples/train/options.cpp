#include "train/options.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdlib>
#include <string>
#include <string_view>

#include "train/user_error.hpp"

namespace train {
namespace {

constexpr std::size_t kDefaultCheckpointEvery = 50;

bool is_rank_0() {
    const char* rank = std::getenv("RANK");
    return rank == nullptr || std::string_view(rank) == "0";
}

}  // namespace

std::optional<int> parse_options(int argc, const char* const* argv, Options& options) {
    CLI::App app(
        "Trains a byte-level language model on text, on all ranks that the launcher started.\n"
        "    train                                                       one rank\n"
        "    ddprun --nnodes 2 --nproc_per_node 4 --local-nodes train    eight ranks on this machine",
        "train");
    // CLI11 would take a path for a list of its components.
    std::vector<std::string> data;
    std::string checkpoint_dir;
    std::string loss_log;
    const auto positive = CLI::Range(std::size_t{1}, std::size_t{1} << 30).description("");
    const auto count = [&](const char* name, std::size_t& value, const char* help) {
        app.add_option(name, value, help)->check(positive)->type_name("N")->capture_default_str();
    };
    app.add_option("--data", data, "Files to learn from (default: the licence texts in /usr/share/common-licenses)")
        ->type_name("FILE")
        ->expected(1, -1);
    count("--steps", options.steps, "Optimiser steps");
    count("--global-batch", options.global_batch, "Samples per step, of all ranks together");
    app.add_option("--seed", options.seed, "Of the initial parameters and of the order of samples")
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--lr", options.rate, "Learning rate, reached after a warm-up of 20 steps")
        ->check(CLI::Validator(CLI::PositiveNumber).description(""))
        ->type_name("RATE")
        ->capture_default_str();
    app.add_option("--checkpoint-dir", checkpoint_dir, "Save there, and go on from the newest checkpoint found there")
        ->type_name("DIR");
    auto* every = app.add_option("--checkpoint-every", options.checkpoint_every,
                                 fmt::format("Steps between checkpoints; 0: never (default: {} with --checkpoint-dir)",
                                             kDefaultCheckpointEvery))
                      ->type_name("N");
    count("--context", options.shape.context, "Bytes that the model sees");
    count("--embedding", options.shape.embedding, "Numbers per byte");
    count("--hidden1", options.shape.hidden1, "Size of the first hidden layer");
    count("--hidden2", options.shape.hidden2, "Size of the second hidden layer");
    app.add_option("--threads", options.threads,
                   "Threads per rank (default: OMP_NUM_THREADS, or CPUs / ranks of this node)")
        ->check(CLI::Range(1, 4096).description(""))
        ->type_name("N");
    app.add_option("--loss-log", loss_log, "Write 'step loss' there after each step, in full precision")
        ->type_name("FILE");
    app.add_option("--progress", options.progress, "auto, bar (for terminals), plain (lines) or none")
        ->transform(CLI::CheckedTransformer(std::map<std::string, ProgressStyle>{{"auto", ProgressStyle::kAuto},
                                                                                 {"bar", ProgressStyle::kBar},
                                                                                 {"plain", ProgressStyle::kPlain},
                                                                                 {"none", ProgressStyle::kNone}})
                        .description(""))
        ->type_name("HOW");
    try {
        app.parse(argc, argv);
        if (options.checkpoint_every > 0 && checkpoint_dir.empty()) {
            throw CLI::ValidationError("--checkpoint-every", "needs --checkpoint-dir DIR, where the checkpoints go");
        }
    } catch (const CLI::CallForHelp&) {
        if (is_rank_0()) fmt::print("{}", app.help());
        return 0;
    } catch (const CLI::ParseError& error) {
        if (is_rank_0()) fmt::print(stderr, "train: {}. See train --help\n", error.what());
        return kUserErrorExitCode;
    }
    if (!checkpoint_dir.empty() && every->empty()) options.checkpoint_every = kDefaultCheckpointEvery;
    options.data.assign(data.begin(), data.end());
    options.checkpoint_dir = checkpoint_dir;
    options.loss_log = loss_log;
    return std::nullopt;
}

}  // namespace train
