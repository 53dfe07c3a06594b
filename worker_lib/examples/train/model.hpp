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
#include <string_view>
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
    enum Parameter : std::size_t { kEmbedding, kWeight1, kBias1, kWeight2, kBias2, kWeight3, kBias3, kParameters };
    static constexpr std::array<std::string_view, kParameters> kNames = {
        "embedding", "layer1.weight", "layer1.bias", "layer2.weight", "layer2.bias", "layer3.weight", "layer3.bias"};

    /// Initialises the parameters from `seed`: to the same numbers on every rank.
    Model(const ModelShape& shape, std::uint64_t seed);

    [[nodiscard]] std::span<T> parameter(std::size_t i) { return parameters_[i]; }
    [[nodiscard]] std::size_t parameter_count() const;

    /// Returns the sum over the batch of -log p(target), in nats. Keeps the activations for backward().
    double forward(const Batch& batch);

    /// Computes the gradients of the batch's mean loss. `gradients[i]` has the size of parameter(i) and is overwritten;
    /// `ready(i)` is called as soon as it is complete, the last layer first. `batch` is the one of forward().
    void backward(const Batch& batch, std::span<const std::span<T>> gradients,
                  const std::function<void(std::size_t)>& ready);

private:
    [[nodiscard]] std::size_t input_size() const { return shape_.context * shape_.embedding; }
    void embed(const Batch& batch);
    double softmax(const Batch& batch);
    void embedding_gradient(const Batch& batch, std::span<T> gradient) const;

    ModelShape shape_;
    std::array<std::vector<T>, kParameters> parameters_;
    std::vector<T> input_, hidden1_, hidden2_, output_;  // activations, one row per window; output_: probabilities
    std::vector<T> delta1_, delta2_, delta_input_;       // derivatives of the loss by the layers' inputs
};

extern template class Model<float>;
extern template class Model<double>;

}  // namespace train
