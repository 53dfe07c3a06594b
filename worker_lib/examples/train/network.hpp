#pragma once
// Network: the model with its optimiser, on the CPU or on a CUDA device. The trainer knows nothing else of the device.
// On a GPU the calls enqueue their work on stream() and return; only loss() waits.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ddp/ddp.hpp"
#include "model.hpp"
#include "support/options.hpp"

namespace train {

class Network {
public:
    static constexpr auto kNames = Model<float>::kNames;

    virtual ~Network() = default;

    /// Returns the stream of all work; that of host memory, which has none, is {}.
    [[nodiscard]] virtual ddp::Stream stream() const { return {}; }
    /// Returns the memory of the parameters, in the order of kNames.
    [[nodiscard]] virtual std::vector<ddp::Buffer> parameters() = 0;
    /// Returns the optimiser's memory: one velocity for each parameter.
    [[nodiscard]] virtual std::vector<ddp::Buffer> velocities() = 0;

    /// Computes the loss of a batch.
    virtual void forward(const Batch& batch) = 0;
    /// Waits for forward() and returns the sum over its batch of -log p(target), in nats.
    [[nodiscard]] virtual double loss() = 0;
    /// Computes the gradients: see Model::backward().
    virtual void backward(const Batch& batch, double divisor, const std::vector<ddp::Buffer>& gradients,
                          const std::function<void(std::size_t)>& ready) = 0;
    /// Makes one step of the optimiser with the averages of all ranks.
    /// ok   GradientReducer::step_ok(): a GPU makes no step if it is 0
    virtual void update(const std::vector<ddp::Buffer>& gradients, ddp::Buffer ok, float rate) = 0;
    /// Waits until all steps are done.
    virtual void wait() {}
};

/// Makes the model on the CPU.
[[nodiscard]] std::unique_ptr<Network> make_cpu_network(const ModelShape& shape, std::uint64_t seed);
/// Makes the model on the device of the options, with the same numbers on every rank. Collective. Throws UserError, on
/// all ranks alike, if one of them has no CUDA driver or no cuBLAS.
[[nodiscard]] std::unique_ptr<Network> make_network(const Options& options, ddp::Context& context);

}  // namespace train
