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
    bool overlap = true;                   ///< gradients are sent while backward goes on
    int threads = 0;                       ///< for matrix products, per rank; 0: this rank's share of the machine
    std::filesystem::path checkpoint_dir;  ///< empty: no checkpoints
    std::size_t checkpoint_every = 0;      ///< steps; 0: never
    std::filesystem::path loss_log;        ///< empty: none
    ProgressStyle progress = ProgressStyle::kAuto;
};

/// Fills `options`, or returns the exit code to end with: 0 after --help (1 if stdout did not accept it),
/// kUserErrorExitCode after a message. Only rank 0, by the environment, prints.
[[nodiscard]] std::optional<int> parse_options(int argc, const char* const* argv, Options& options);

}  // namespace train
