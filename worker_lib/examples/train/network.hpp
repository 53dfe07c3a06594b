#pragma once
// Network: a whole model with its optimiser, on the CPU or on a CUDA device. Its users know nothing else of the device.
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
    /// Returns the optimiser's arrays of a parameter, in the order of array_names().
    [[nodiscard]] virtual std::vector<ddp::Buffer> optimizer_arrays(std::size_t parameter) = 0;

    /// Computes the loss of a batch.
    virtual void forward(const Batch& batch) = 0;
    /// Waits for forward() and returns the sum over its batch of -log p(target), in nats.
    [[nodiscard]] virtual double loss() = 0;
    /// Computes the gradients: see Model::backward().
    virtual void backward(const Batch& batch, double divisor, const std::vector<ddp::Buffer>& gradients,
                          const std::function<void(std::size_t)>& ready) = 0;
    /// Makes one step of the optimiser with the averages of all ranks.
    /// ok     GradientReducer::step_ok(): a GPU makes no step if it is 0
    /// step   counts from 1
    virtual void update(const std::vector<ddp::Buffer>& gradients, ddp::Buffer ok, float rate, std::size_t step) = 0;
    /// Waits until all steps are done.
    virtual void wait() {}
};

/// Makes the model on the CPU.
[[nodiscard]] std::unique_ptr<Network> make_cpu_network(const Options& options);
/// Makes the model on the device of the options. Collective. Throws UserError, on all ranks alike, if one of them has
/// no CUDA driver or no cuBLAS.
[[nodiscard]] std::unique_ptr<Network> make_network(const Options& options, ddp::Context& context);

}  // namespace train
