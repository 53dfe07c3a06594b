// train: takes options and prints one line of JSON. This file handles start and failures; trainer.cpp has the training.

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <thread>

#include "ddp/ddp.hpp"
#include "train/options.hpp"
#include "train/process.hpp"
#include "train/trainer.hpp"
#include "train/user_error.hpp"

namespace {

constexpr std::chrono::seconds kPauseOfSilentRanks{2};
constexpr int kRestartIsUseless = 93;  // to ddprun: every worker would be started in the same environment again

/// Ends a job that all ranks leave with the same exit code. All ranks call it, one of them with a message. That rank
/// prints it and ends the process at once, so that the launcher, which reports the first rank to end, reports this one.
/// The others wait for a moment and return the code.
int leave(ddp::Context& context, std::string_view message, int exit_code) {
    if (!message.empty()) fmt::print(stderr, "train: {}\n", message);
    try {
        // The launcher gives a rank that seems to fail a second to report its own failure. So every rank completes a
        // barrier after the exception. When the second one is complete, each rank has recorded the end of the first.
        for (const char* const tag : {"leaving", "left"})
            context.world().barrier({.timeout = std::chrono::seconds(10), .label = tag}).wait();
    } catch (const ddp::Error&) {  // a rank was lost meanwhile; the message is printed all the same
    }
    if (!message.empty()) std::_Exit(exit_code);  // at once, without destructors: first of all ranks on all nodes
    std::this_thread::sleep_for(kPauseOfSilentRanks);
    return exit_code;
}

int train_and_report(const train::Options& options, ddp::Context& context) {
    try {
        const train::Summary summary = train::train(options, context);
        if (summary.preempted) return ddp::kPreemptedExitCode;
        return context.rank() == 0 ? train::print_result(train::to_json(summary) + "\n") : EXIT_SUCCESS;
    } catch (const train::LoneUserError& error) {
        // The other ranks do not go to a barrier: they notice the end of this process, and later than the launcher.
        fmt::print(stderr, "train: {}\n", error.what());
        std::_Exit(train::kUserErrorExitCode);
    } catch (const train::UserError& error) {
        return leave(context, error.what(), train::kUserErrorExitCode);
    } catch (const ddp::Error& error) {
        if (error.code() != ddp::ErrorCode::Io) throw;
        // A checkpoint that cannot be read or written: every rank has the same text.
        return leave(context, context.rank() == 0 ? error.what() : "", EXIT_FAILURE);
    }
}

/// Prints the error of this rank, which has no number if its environment is lost. Returns the exit code.
int report_own_view(const std::exception& error) {
    const std::string rank = std::getenv("RANK") != nullptr ? fmt::format("rank {}: ", train::launcher_rank()) : "";
    fmt::print(stderr, "train: {}{}\n", rank, error.what());
    const auto* const known = dynamic_cast<const ddp::Error*>(&error);
    const bool is_lasting = known != nullptr && known->code() == ddp::ErrorCode::Environment;
    return is_lasting ? kRestartIsUseless : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
    train::Options options;
    if (const auto exit_code = train::parse_options(argc, argv, options)) {
        // Rank 0 has printed the message. The launcher reports the first rank that ends, and stops the others.
        if (*exit_code != 0 && train::launcher_rank() != "0") std::this_thread::sleep_for(kPauseOfSilentRanks);
        return *exit_code;
    }
    try {
        // Connect to the other ranks. The launcher's environment variables give their number and the address of their
        // store; without a launcher this is a world of one. This trainer computes on the CPU, so its group is native.
        ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
        return train_and_report(options, context);
    } catch (const std::exception& error) {  // such as a rank that is missing or lost: each rank reports its own view
        return report_own_view(error);
    }
}
