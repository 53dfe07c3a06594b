#pragma once
// Model: a language model over bytes. It predicts the next byte from the last `context` bytes, with an embedding per
// byte, two hidden layers (tanh) and a softmax over 256 values (Bengio et al. 2003, "A neural probabilistic language
// model"). It is independent of processes: it writes gradients into the caller's memory, and reports when each is
// complete. Layers computes with parameters of the caller, which may be whole only for the moment.

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

/// Computes one layer after another, with parameters that the caller lends for one call. Owns the activations. T is
/// float for training, double for comparison with finite differences. One thread.
template <typename T>
class Layers {
public:
    static constexpr std::size_t kCount = 3;
    /// Parameters in the order in which layers use them, so the last are complete first in backward. Layer 0 has the
    /// first three, the others have two.
    static constexpr std::array kNames = {"embedding",   "layer1.weight", "layer1.bias", "layer2.weight",
                                          "layer2.bias", "layer3.weight", "layer3.bias"};
    /// Returns the index in kNames of a layer's first parameter; of layer kCount: past the last one.
    static constexpr std::size_t first_of(std::size_t layer) { return layer == 0 ? 0 : 1 + 2 * layer; }

    explicit Layers(const ModelShape& shape)
        : embedding_(shape.embedding), size_{shape.context * shape.embedding, shape.hidden1, shape.hidden2, kSymbols} {}

    /// Returns the dimensions of a parameter.
    [[nodiscard]] std::vector<std::size_t> dimensions(std::size_t parameter) const;
    /// Returns the number of its elements.
    [[nodiscard]] std::size_t count(std::size_t parameter) const;
    /// Writes the values of a new model to elements `begin` … of a parameter: the same numbers for every division into
    /// parts.
    void initialise(std::size_t parameter, std::size_t begin, std::uint64_t seed, std::span<T> values) const;

    /// Sets the batch of the calls that follow, during which it has to stay valid.
    void begin(const Batch& batch) { batch_ = &batch; }
    /// Computes a layer; the first one first. `parameters` are those of the layer.
    void forward(std::size_t layer, std::span<const std::span<const T>> parameters);
    /// Ends the forward. Returns the sum over the batch of -log p(target), in nats.
    [[nodiscard]] double loss();

    /// Begins the backward of the loss divided by `divisor`.
    void begin_backward(double divisor);
    /// Computes the gradients of a layer; the last one first. Overwrites gradients[i], of the size of parameters[i],
    /// and calls `ready` with its index in kNames as soon as it is complete.
    void backward(std::size_t layer, std::span<const std::span<const T>> parameters,
                  std::span<const std::span<T>> gradients, const std::function<void(std::size_t)>& ready);

private:
    static constexpr std::size_t kSymbols = 256;  // values of a byte

    std::size_t embedding_;                     // numbers per byte
    std::array<std::size_t, kCount + 1> size_;  // of each layer's input, and of the output
    const Batch* batch_ = nullptr;
    std::array<std::vector<T>, kCount + 1>
        activations_;                     // input of each layer, one row per window; last: probabilities
    std::vector<T> delta_, delta_below_;  // derivatives of the loss by a layer's outputs and inputs
};

/// The layers with parameters of its own. One thread.
template <typename T>
class Model {
public:
    static constexpr auto kNames = Layers<T>::kNames;

    /// Initialises the parameters from `seed`: to the same numbers on every rank.
    Model(const ModelShape& shape, std::uint64_t seed);

    /// Returns the memory of the parameters, in the order of kNames.
    [[nodiscard]] std::vector<std::span<T>> parameters() { return {parameters_.begin(), parameters_.end()}; }

    /// Returns the sum over the batch of -log p(target), in nats. Keeps the activations for backward().
    double forward(const Batch& batch);

    /// Computes the gradients of the batch's loss divided by `divisor`. `gradients[i]` has the size of parameter i and
    /// is overwritten; `ready(i)` is called as soon as it is complete, the last layer first. `batch` is that of
    /// forward().
    void backward(const Batch& batch, double divisor, std::span<const std::span<T>> gradients,
                  const std::function<void(std::size_t)>& ready);

private:
    /// Returns the parameters of a layer.
    [[nodiscard]] std::vector<std::span<const T>> of_layer(std::size_t layer) const {
        const auto first = parameters_.begin();
        return {first + static_cast<std::ptrdiff_t>(Layers<T>::first_of(layer)),
                first + static_cast<std::ptrdiff_t>(Layers<T>::first_of(layer + 1))};
    }

    Layers<T> layers_;
    std::array<std::vector<T>, kNames.size()> parameters_;
};

}  // namespace train
