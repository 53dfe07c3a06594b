// train: takes options and prints one line of JSON. This file handles start and failures; trainer.cpp has the training.

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
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

/// Returns the line to print; empty for an error that another rank reports.
std::string report_of(const std::exception& error) {
    const std::string_view text = error.what();
    return text.empty() ? "" : fmt::format("train: {}", text);
}

int train_and_report(const train::Options& options, ddp::Context& context) {
    try {
        const train::Summary summary = train::train(options, context);
        if (summary.preempted) return ddp::kPreemptedExitCode;
        return context.rank() == 0 ? train::print_result(train::to_json(summary) + "\n") : EXIT_SUCCESS;
    } catch (const train::UserError& error) {
        ddp::fail(context, report_of(error), train::kUserErrorExitCode);
    } catch (const ddp::Error& error) {
        if (error.code() != ddp::ErrorCode::Io) throw;
        // A checkpoint that cannot be read or written: every rank has the same text.
        ddp::fail(context, context.rank() == 0 ? report_of(error) : "", EXIT_FAILURE);
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
