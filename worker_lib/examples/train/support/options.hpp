#pragma once
// The command line of train.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ddp/sharding.hpp"
#include "ddp/types.hpp"
#include "model.hpp"
#include "support/optimizer.hpp"

namespace train {

struct Options {
    std::vector<std::filesystem::path> data;  ///< empty: the licence texts of this machine
    std::size_t steps = 120;
    std::size_t global_batch = 512;  ///< windows per step, of all ranks together
    std::uint64_t seed = 1;
    Optimizer optimizer = Optimizer::kSgd;
    float rate = 0;  ///< learning rate; 0: the default for the optimiser and the batch
    ModelShape shape;
    ddp::Device device = ddp::Device::Cpu;
    std::optional<ddp::Sharding> sharding;  ///< nothing: every rank has the whole model, with GradientReducer
    std::optional<ddp::DType> param_dtype;  ///< in which sharded parameters are gathered; nothing: f32
    bool plan = false;                      ///< print the memory of each rank instead of training
    bool no_overlap = false;                ///< gradients are sent after backward, not while it goes on
    std::filesystem::path checkpoint_dir;   ///< empty: no checkpoints
    std::size_t checkpoint_every = 50;      ///< steps; 0: never
    std::filesystem::path loss_log;         ///< empty: none
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
  --sharding HOW        What the ranks divide among themselves: full: parameters, gradients and the optimiser's arrays
                        (FSDP, ZeRO-3); grad: gradients and arrays (ZeRO-2); optimizer: the arrays (ZeRO-1); none:
                        nothing. All have the same loss, unless --param-dtype rounds it. Without it every rank has
                        the whole model, and gradients are averaged in buckets
  --param-dtype TYPE    With --sharding: the type in which parameters are gathered: f32 (default), bf16 or f16. The
                        optimiser's and the gradients are f32
  --plan                With --sharding: print the memory that each rank needs, and end
  --steps N             Optimiser steps (default: 120)
  --global-batch N      Samples per step, of all ranks together (default: 512)
  --optimizer NAME      sgd, with a momentum of 0.9 (default); adamw, with PyTorch's defaults
  --lr RATE             Learning rate, reached after 20 steps (default: 0.001 for adamw; for sgd 0.1 for a --global-batch
                        of 512 or more, and in proportion to smaller ones)
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
