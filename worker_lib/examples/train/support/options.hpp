#pragma once
// The command line of train.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ddp/types.hpp"
#include "model.hpp"

namespace train {

struct Options {
    std::vector<std::filesystem::path> data;  ///< empty: the licence texts of this machine
    std::size_t steps = 120;
    std::size_t global_batch = 512;  ///< windows per step, of all ranks together
    std::uint64_t seed = 1;
    float rate = 0;  ///< learning rate; 0: the default for the batch
    ModelShape shape;
    ddp::Device device = ddp::Device::Cpu;
    bool overlap = true;                   ///< gradients are sent while backward goes on
    std::filesystem::path checkpoint_dir;  ///< empty: no checkpoints
    std::size_t checkpoint_every = 50;     ///< steps; 0: never
    std::filesystem::path loss_log;        ///< empty: none
    bool progress = true;
    bool help = false;
};

/// Throws UserError with a text that names the option and what is wrong with it.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments);

inline constexpr const char* kHelp =
    R"(Trains a byte-level language model on text, on all ranks that the launcher started.
    train                                                       one rank
    ddprun --nnodes 2 --nproc-per-node 4 --local-nodes train    eight ranks on this machine

  --device DEVICE       cpu (default); cuda: one GPU for each rank, with NCCL and cuBLAS. The loss is the same, and each
                        resumes from the checkpoints of the other
  --steps N             Optimiser steps (default: 120)
  --global-batch N      Samples per step, of all ranks together (default: 512)
  --lr RATE             Learning rate, reached after 20 steps (default: 0.1 for a --global-batch of 512 or more, and in
                        proportion to smaller ones)
  --seed N              Seed of the initial parameters and of the order of samples (default: 1)
  --hidden1 N           Size of the first hidden layer (default: 2048)
  --hidden2 N           Size of the second hidden layer (default: 768)
  --data FILE           File to learn from; may be repeated (default: all of /usr/share/common-licenses)
  --checkpoint-dir DIR  Save checkpoints there, and resume from the newest one
  --checkpoint-every N  Steps between checkpoints; 0: never (default: 50)
  --loss-log FILE       Write 'step loss' there after each step, in full precision
  --no-overlap          Send gradients after backward: exposed_ms of both runs shows what overlap hides
  --progress HOW        plain: lines on stderr (default); none
  --help                Print this text
)";

}  // namespace train
