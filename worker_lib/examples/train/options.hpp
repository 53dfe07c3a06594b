#pragma once
// The command line of train.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "train/model.hpp"

namespace train {

enum class ProgressStyle { kAuto, kBar, kPlain, kNone };

struct Options {
    std::vector<std::filesystem::path> data;  ///< empty: default_files()
    std::size_t steps = 120;
    std::size_t global_batch = 512;  ///< windows per step, of all ranks together
    std::uint64_t seed = 1;
    float rate = 0.1f;
    ModelShape shape;
    bool overlap = true;                   ///< gradients travel while backward goes on
    int threads = 0;                       ///< of matrix products, per rank; 0: this machine's share
    std::filesystem::path checkpoint_dir;  ///< empty: no checkpoints
    std::size_t checkpoint_every = 0;      ///< steps; 0: never
    std::filesystem::path loss_log;        ///< empty: none
    ProgressStyle progress = ProgressStyle::kAuto;
};

/// Fills `options`, or returns the exit code with which to end: 0 after --help (1 if stdout did not
/// take it), kUserErrorExitCode after a message.
/// Only the rank 0 that the environment names speaks.
[[nodiscard]] std::optional<int> parse_options(int argc, const char* const* argv, Options& options);

}  // namespace train
