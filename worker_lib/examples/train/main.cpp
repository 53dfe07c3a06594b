// train: takes options and prints one line of JSON. This file handles start and failures; trainer.cpp has the training.

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <thread>

#include "ddp/ddp.hpp"
#include "parallel_model.hpp"
#include "support/options.hpp"
#include "support/user_error.hpp"
#include "trainer.hpp"

namespace {

constexpr int kRestartIsUseless = 93;  // to ddprun: another attempt would end in the same way
constexpr std::chrono::seconds kPauseOfSilentRanks{2};

/// Writes all of `text` to stdout. Returns the exit code: 0, or 1 after a message when it could not be written.
int print_result(const std::string& text) {
    if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return EXIT_SUCCESS;
    std::fprintf(stderr,
                 "train: cannot write to stdout: %s. The result is lost. Redirect stdout to where there is room\n",
                 std::strerror(errno));
    return EXIT_FAILURE;
}

/// Returns one line of JSON.
std::string to_json(const train::Summary& summary, const ddp::Context& context) {
    char line[400];
    std::snprintf(line, sizeof line,
                  "{\"world_size\":%d,\"steps\":%zu,\"loss_first\":%.17g,\"loss_last\":%.17g,\"lr\":%g,"
                  "\"samples_per_s\":%.1f,\"exposed_ms\":%.3f,\"restarts\":%d}\n",
                  context.world_size(), summary.steps, summary.loss_first, summary.loss_last, summary.rate,
                  summary.samples_per_s, summary.exposed_ms, context.restart_count());
    return line;
}

int train_and_report(const train::Options& options, ddp::Context& context) {
    const bool is_first = context.rank() == 0;
    std::string problem;  // empty: this rank ends in silence, because another one reports the error
    int code = kRestartIsUseless;
    try {
        if (options.plan) {
            const std::string plan = train::memory_plan(options, context);
            return is_first ? print_result(plan) : EXIT_SUCCESS;
        }
        const train::Summary summary = train::train(options, context);
        if (summary.preempted) return ddp::kPreemptedExitCode;
        return is_first ? print_result(to_json(summary, context)) : EXIT_SUCCESS;
    } catch (const train::UserError& error) {
        problem = error.what();
    } catch (const ddp::Error& error) {
        if (error.code() != ddp::ErrorCode::Io) throw;
        if (is_first) problem = error.what();  // a checkpoint that cannot be read or written; all ranks have this text
        code = EXIT_FAILURE;
    }
    ddp::fail(context, problem.empty() ? "" : "train: " + problem, code);
}

}  // namespace

int main(int argc, char** argv) {
    const char* const variable = std::getenv("RANK");  // there is no context yet, or none any more
    const std::string rank = variable != nullptr ? variable : "";
    const bool is_first = rank.empty() || rank == "0";
    train::Options options;
    try {
        options = train::parse_options({argv + 1, argv + argc});
    } catch (const train::UserError& error) {
        // Rank 0 prints the message. The launcher reports the first rank that ends, and stops the others.
        if (is_first) std::fprintf(stderr, "train: %s\n", error.what());
        if (!is_first) std::this_thread::sleep_for(kPauseOfSilentRanks);
        return kRestartIsUseless;
    }
    if (options.help) return is_first ? print_result(train::kHelp) : EXIT_SUCCESS;
    try {
        // Connect to the other ranks. The launcher's environment variables give their number and the address of their
        // store; without a launcher this is a world of one. The memory of the model decides the backend of the groups.
        const bool on_cuda = options.device == ddp::Device::Cuda;
        ddp::Context context = ddp::init_from_env({.backend = on_cuda ? ddp::Backend::Nccl : ddp::Backend::Native});
        return train_and_report(options, context);
    } catch (const std::exception& error) {
        // Such as a rank that is missing or lost: each rank reports its own view.
        const auto* const known = dynamic_cast<const ddp::Error*>(&error);
        // There is no GPU, no driver or no NCCL here, and there will not be one after a restart.
        const bool is_unavailable = known != nullptr && known->code() == ddp::ErrorCode::Unavailable;
        std::fprintf(stderr, "train: %s%s%s\n", rank.empty() ? "" : ("rank " + rank + ": ").c_str(), error.what(),
                     is_unavailable ? ". To train without a GPU, pass --device cpu" : "");
        const bool is_useless = is_unavailable || (known != nullptr && known->code() == ddp::ErrorCode::Environment);
        return is_useless ? kRestartIsUseless : EXIT_FAILURE;
    }
}
