#pragma once
// Model: a language model over bytes. It predicts the next byte from the last `context` bytes, with an embedding per
// byte, two hidden layers (tanh) and a softmax over 256 values (Bengio et al. 2003, "A neural probabilistic language
// model"). It is independent of processes: it writes gradients into the caller's memory, and reports when each is
// complete.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace train {

/// The sizes of the layers.
struct ModelShape {
    std::size_t context = 32;    ///< bytes that the model sees
    std::size_t embedding = 32;  ///< numbers per byte
    std::size_t hidden1 = 2048;
    std::size_t hidden2 = 768;
};

/// Windows of a text, and the byte that follows each.
struct Batch {
    std::vector<std::uint8_t> contexts;  ///< size() × context
    std::vector<std::uint8_t> targets;
    [[nodiscard]] std::size_t size() const { return targets.size(); }
};

/// Owns parameters and activations. T is float for training, double for comparison with finite differences. One thread.
template <typename T>
class Model {
public:
    /// Parameters in the order in which forward() uses them, so the last are complete first in backward().
    static constexpr std::array kNames = {"embedding",   "layer1.weight", "layer1.bias", "layer2.weight",
                                          "layer2.bias", "layer3.weight", "layer3.bias"};

    /// Initialises the parameters from `seed`: to the same numbers on every rank.
    Model(const ModelShape& shape, std::uint64_t seed);

    /// Returns the memory of the parameters, in the order of kNames.
    [[nodiscard]] std::vector<std::span<T>> parameters() { return {parameters_.begin(), parameters_.end()}; }

    /// Returns the sum over the batch of -log p(target), in nats. Keeps the activations for backward().
    double forward(const Batch& batch);

    /// Computes the gradients of the batch's loss divided by `divisor`. `gradients[i]` has the size of parameter i and
    /// is overwritten; `ready(i)` is called as soon as it is complete, the last layer first. `batch` is that of
    /// forward().
    void backward(const Batch& batch, double divisor, const std::vector<std::span<T>>& gradients,
                  const std::function<void(std::size_t)>& ready);

private:
    static constexpr std::size_t kLayers = 3;
    static constexpr std::size_t weight(std::size_t layer) { return 1 + 2 * layer; }  // index of the parameter
    static constexpr std::size_t bias(std::size_t layer) { return 2 + 2 * layer; }

    std::size_t embedding_;                      // numbers per byte
    std::array<std::size_t, kLayers + 1> size_;  // of each layer's input, and of the output
    std::array<std::vector<T>, kNames.size()> parameters_;
    std::array<std::vector<T>, kLayers + 1>
        activations_;                     // input of each layer, one row per window; last: probabilities
    std::vector<T> delta_, delta_below_;  // derivatives of the loss by a layer's outputs and inputs
};

}  // namespace train
