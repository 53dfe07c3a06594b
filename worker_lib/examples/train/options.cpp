#include "train/options.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <string>

#include "train/option_checks.hpp"
#include "train/process.hpp"
#include "train/user_error.hpp"

namespace train {
namespace {

constexpr std::size_t kDefaultCheckpointEvery = 50;
constexpr std::uint64_t kLargestCount = 1u << 30;

const std::array<std::string, 4> kStyles{"auto", "bar", "plain", "none"};  // in the order of ProgressStyle

/// Options that CLI11 stores as text: it would take a path for a list of its components.
struct Texts {
    std::vector<std::string> data;
    std::string checkpoint_dir;
    std::string loss_log;
    std::string progress = kStyles[0];
};

CLI::Validator whole_number(std::uint64_t min, std::uint64_t max) {
    return {[min, max](const std::string& text) { return check_whole_number(text, min, max); }, ""};
}

/// Adds the options that decide the loss.
void add_training_options(CLI::App& app, Options& options) {
    const auto count = [&](const char* name, std::size_t& value, const char* help) {
        app.add_option(name, value, help)->check(whole_number(1, kLargestCount))->type_name("N")->capture_default_str();
    };
    count("--steps", options.steps, "Optimiser steps");
    count("--global-batch", options.global_batch, "Samples per step of all ranks together");
    app.add_option("--seed", options.seed, "Seed of the initial parameters and of the order of samples")
        ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--lr", options.rate, "Learning rate, reached after a warm-up of 20 steps")
        ->check(CLI::Validator([](const std::string& text) { return check_positive(text); }, ""))
        ->type_name("RATE")
        ->capture_default_str();
    count("--context", options.shape.context, "Bytes that the model sees");
    count("--embedding", options.shape.embedding, "Numbers per byte");
    count("--hidden1", options.shape.hidden1, "Size of the first hidden layer");
    count("--hidden2", options.shape.hidden2, "Size of the second hidden layer");
}

/// Adds the options for files, threads and output.
void add_running_options(CLI::App& app, Options& options, Texts& texts) {
    app.add_option("--data", texts.data,
                   "Files to learn from (default: the licence texts in /usr/share/common-licenses)")
        ->type_name("FILE")
        ->expected(1, -1);
    app.add_option("--checkpoint-dir", texts.checkpoint_dir, "Save checkpoints there, and resume from the newest one")
        ->type_name("DIR");
    app.add_option("--checkpoint-every", options.checkpoint_every,
                   fmt::format("Steps between checkpoints; 0: never (default: {} with --checkpoint-dir)",
                               kDefaultCheckpointEvery))
        ->check(whole_number(0, kLargestCount))
        ->type_name("N");
    app.add_option("--threads", options.threads,
                   "Threads per rank (default: OMP_NUM_THREADS, or CPUs / ranks of this node)")
        ->check(whole_number(1, 4096))
        ->type_name("N");
    // Not one option "--overlap,!--no-overlap": its help would have the mark {false}. The last one given counts.
    app.add_flag_callback(
           "--overlap", [&] { options.overlap = true; }, "Send gradients during backward (default)")
        ->trigger_on_parse();
    app.add_flag_callback(
           "--no-overlap", [&] { options.overlap = false; },
           "Send gradients after backward: exposed_ms of both runs shows what overlap hides")
        ->trigger_on_parse();
    app.add_option("--loss-log", texts.loss_log, "Write 'step loss' there after each step, in full precision")
        ->type_name("FILE");
    app.add_option(
           "--progress", texts.progress,
           "auto, bar (for terminals), plain (lines) or none. 'waits' there is the share of time in which rank 0 waits "
           "for gradients: for slower ranks, and for communication that backward did not hide (exposed_ms)")
        ->check(CLI::Validator([](const std::string& text) { return check_one_of(text, kStyles); }, ""))
        ->type_name("HOW");
}

/// Returns the problem; empty if there is none. Throws CLI::CallForHelp.
std::string parse(CLI::App& app, std::vector<std::string> arguments) {
    try {
        std::ranges::reverse(arguments);  // CLI11 takes them from the back
        app.parse(arguments);
    } catch (const CLI::CallForHelp&) {
        throw;
    } catch (const CLI::ArgumentMismatch& error) {  // "--steps: 1 required N missing", and the like
        const std::string name = std::string(error.what()).substr(0, std::string_view(error.what()).find(':'));
        return fmt::format("{} takes {} value", name, name == "--data" ? "at least one" : "exactly one");
    } catch (const CLI::ParseError& error) {
        return error.what();
    }
    if (const auto leftover = app.remaining(); !leftover.empty()) {
        std::vector<std::string> known;
        for (const CLI::Option* option : app.get_options()) known.push_back("--" + option->get_single_name());
        return complain_about(leftover, known);
    }
    const auto* const every = app.get_option("--checkpoint-every");
    if (every->count() > 0 && every->as<std::size_t>() > 0 && app.count("--checkpoint-dir") == 0) {
        return "--checkpoint-every needs --checkpoint-dir DIR, the directory of the checkpoints";
    }
    return {};
}

}  // namespace

std::optional<int> parse_options(int argc, const char* const* argv, Options& options) {
    CLI::App app(
        "Trains a byte-level language model on text, on all ranks that the launcher started.\n"
        "    train                                                       one rank\n"
        "    ddprun --nnodes 2 --nproc_per_node 4 --local-nodes train    eight ranks on this machine",
        "train");
    Texts texts;
    app.allow_extras();
    add_training_options(app, options);
    add_running_options(app, options, texts);
    try {
        if (const std::string problem = parse(app, with_dashes(argc, argv)); !problem.empty()) {
            if (launcher_rank() == "0")
                fmt::print(stderr, "train: {}{} See train --help\n", problem, problem.ends_with('?') ? "" : ".");
            return kUserErrorExitCode;
        }
    } catch (const CLI::CallForHelp&) {
        return launcher_rank() == "0" ? print_result(app.help()) : 0;
    }
    if (app.count("--checkpoint-dir") > 0 && app.count("--checkpoint-every") == 0) {
        options.checkpoint_every = kDefaultCheckpointEvery;
    }
    options.data.assign(texts.data.begin(), texts.data.end());
    options.checkpoint_dir = texts.checkpoint_dir;
    options.loss_log = texts.loss_log;
    options.progress = static_cast<ProgressStyle>(std::ranges::find(kStyles, texts.progress) - kStyles.begin());
    return std::nullopt;
}

}  // namespace train
