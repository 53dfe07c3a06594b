// train: options in, one line of JSON out. The training is in trainer.cpp.

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "ddp/error.hpp"
#include "train/options.hpp"
#include "train/trainer.hpp"
#include "train/user_error.hpp"

namespace {

/// For messages of processes that may not have become a rank yet.
std::string_view rank_text() {
    const char* rank = std::getenv("RANK");
    return rank != nullptr ? rank : "0";
}

}  // namespace

int main(int argc, char** argv) {
    train::Options options;
    if (const auto exit_code = train::parse_options(argc, argv, options)) return *exit_code;
    try {
        const train::Summary summary = train::train(options);
        if (summary.rank == 0) fmt::print("{}\n", train::to_json(summary));
        return EXIT_SUCCESS;
    } catch (const train::UserError& error) {
        if (*error.what() != '\0') fmt::print(stderr, "train: {}\n", error.what());
        return train::kUserErrorExitCode;
    } catch (const ddp::Error& error) {
        // Every rank gets the same text about a checkpoint; about anything else, each has its own view.
        if (error.code() != ddp::ErrorCode::Io || rank_text() == "0") {
            fmt::print(stderr, "train: rank {}: {}\n", rank_text(), error.what());
        }
    } catch (const std::exception& error) {
        fmt::print(stderr, "train: rank {}: {}\n", rank_text(), error.what());
    }
    return EXIT_FAILURE;
}
