// train: options in, one line of JSON out. The training is in trainer.cpp; here are its frame and its failures.

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <thread>

#include "ddp/ddp.hpp"
#include "train/launcher_rank.hpp"
#include "train/options.hpp"
#include "train/output.hpp"
#include "train/trainer.hpp"
#include "train/user_error.hpp"

namespace {

constexpr std::chrono::seconds kTimeForSpeaker{2};

/// The launcher stops everybody when the first rank leaves, and reports that rank. Let it be the one that has spoken.
int leave(ddp::Context& context, std::string_view message, int exit_code) {
    if (!message.empty()) {
        fmt::print(stderr, "train: {}\n", message);
        // Without goodbyes: the others leave when they see this process gone, and later, so that it is the first
        // that the launcher hears of, from whichever node.
        std::_Exit(exit_code);
    }
    try {
        context.world().barrier({.timeout = std::chrono::seconds(10), .tag = "leaving"}).wait();
    } catch (const ddp::Error&) {  // the speaker has gone: it does not come to this barrier
        std::this_thread::sleep_for(kTimeForSpeaker);
    }
    return exit_code;
}

int train_and_report(const train::Options& options, ddp::Context& context) {
    try {
        const train::Summary summary = train::train(options, context);
        return context.rank() == 0 ? train::print_result(train::to_json(summary) + "\n") : EXIT_SUCCESS;
    } catch (const train::UserError& error) {
        return leave(context, error.what(), train::kUserErrorExitCode);
    } catch (const ddp::Error& error) {
        if (error.code() != ddp::ErrorCode::Io) throw;
        // A checkpoint; every rank has the same text.
        return leave(context, context.rank() == 0 ? error.what() : "", EXIT_FAILURE);
    }
}

}  // namespace

int main(int argc, char** argv) {
    train::Options options;
    if (const auto exit_code = train::parse_options(argc, argv, options)) {
        // Rank 0 has said what is wrong. The launcher reports the first rank that leaves, and stops the others.
        if (*exit_code != 0 && train::launcher_rank() != "0") std::this_thread::sleep_for(kTimeForSpeaker);
        return *exit_code;
    }
    try {
        // Meet the other ranks. The launcher has put into the environment who they are and where they meet; without a
        // launcher this is a world of one. This trainer computes on the CPU, so its gradients travel that way too.
        ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
        return train_and_report(options, context);
    } catch (const std::exception& error) {  // ranks that do not come, or are lost: each has its own view
        fmt::print(stderr, "train: rank {}: {}\n", train::launcher_rank(), error.what());
        return EXIT_FAILURE;
    }
}
