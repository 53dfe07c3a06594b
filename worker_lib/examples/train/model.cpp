#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "support/blas.hpp"

namespace train {
namespace {

constexpr std::size_t kSymbols = 256;  // values of a byte

/// Fills with uniform numbers in ±bound. (Those of std::uniform_real_distribution depend on the library.)
template <typename T>
void fill_uniform(std::vector<T>& values, double bound, std::mt19937_64& random) {
    for (T& value : values) {
        const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
        value = static_cast<T>((2 * unit - 1) * bound);
    }
}

/// Turns each row from scores into probabilities. Returns the sum over the rows of -log p(target).
template <typename T>
double softmax(std::vector<T>& scores, const std::vector<std::uint8_t>& targets) {
    double loss = 0;
    for (std::size_t row = 0; row < targets.size(); ++row) {
        const std::span<T> score(scores.data() + row * kSymbols, kSymbols);
        const T largest = *std::ranges::max_element(score);  // so that exp does not overflow
        const T target = score[targets[row]] - largest;
        T total = 0;
        for (T& s : score) total += s = std::exp(s - largest);
        for (T& s : score) s /= total;
        loss += static_cast<double>(std::log(total) - target);
    }
    return loss;
}

}  // namespace

template <typename T>
Model<T>::Model(const ModelShape& shape, std::uint64_t seed)
    : embedding_(shape.embedding), size_{shape.context * shape.embedding, shape.hidden1, shape.hidden2, kSymbols} {
    std::mt19937_64 random(seed);
    parameters_[0].resize(kSymbols * embedding_);
    fill_uniform(parameters_[0], std::sqrt(3.0), random);
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
        std::vector<T>& weights = parameters_[weight(layer)];
        weights.resize(size_[layer] * size_[layer + 1]);
        parameters_[bias(layer)].resize(size_[layer + 1]);
        // Keeps the variance. The last weights stay zero: all bytes are equally likely, a loss of log 256.
        if (layer + 1 < kLayers) fill_uniform(weights, std::sqrt(3.0 / static_cast<double>(size_[layer])), random);
    }
}

template <typename T>
double Model<T>::forward(const Batch& batch) {
    activations_[0].resize(batch.size() * size_[0]);
    for (std::size_t i = 0; i < batch.contexts.size(); ++i) {
        const T* vector = parameters_[0].data() + batch.contexts[i] * embedding_;
        std::copy_n(vector, embedding_, activations_[0].data() + i * embedding_);
    }
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
        const std::vector<T>& in = activations_[layer];
        std::vector<T>& out = activations_[layer + 1];
        const std::vector<T>& biases = parameters_[bias(layer)];
        out.resize(batch.size() * biases.size());
        gemm(Op::kNormal, Op::kNormal, batch.size(), biases.size(), size_[layer], in.data(),
             parameters_[weight(layer)].data(), out.data());
        for (std::size_t row = 0; row < out.size(); row += biases.size()) {
            for (std::size_t j = 0; j < biases.size(); ++j) out[row + j] += biases[j];
        }
        if (layer + 1 == kLayers) break;
        for (T& value : out) value = std::tanh(value);
    }
    return softmax(activations_[kLayers], batch.targets);
}

template <typename T>
void Model<T>::backward(const Batch& batch, double divisor, const std::vector<std::span<T>>& gradients,
                        const std::function<void(std::size_t)>& ready) {
    const std::size_t rows = batch.size();
    delta_.swap(activations_[kLayers]);  // softmax with cross entropy: probability minus truth
    for (std::size_t row = 0; row < rows; ++row) delta_[row * kSymbols + batch.targets[row]] -= 1;
    for (T& value : delta_) value /= static_cast<T>(divisor);

    for (std::size_t layer = kLayers; layer-- > 0;) {
        // First the gradients, so that they can be sent; then the derivatives for the layer below.
        const std::size_t in = size_[layer];
        const std::size_t out = size_[layer + 1];
        const std::span<T> sum = gradients[bias(layer)];
        std::ranges::fill(sum, T{0});
        for (std::size_t row = 0; row < delta_.size(); row += out) {
            for (std::size_t j = 0; j < out; ++j) sum[j] += delta_[row + j];
        }
        ready(bias(layer));
        gemm(Op::kTransposed, Op::kNormal, in, out, rows, activations_[layer].data(), delta_.data(),
             gradients[weight(layer)].data());
        ready(weight(layer));
        delta_below_.resize(rows * in);
        gemm(Op::kNormal, Op::kTransposed, rows, in, out, delta_.data(), parameters_[weight(layer)].data(),
             delta_below_.data());
        delta_.swap(delta_below_);
        if (layer == 0) break;
        const std::vector<T>& tanh = activations_[layer];
        for (std::size_t i = 0; i < delta_.size(); ++i) delta_[i] *= 1 - tanh[i] * tanh[i];
    }

    std::ranges::fill(gradients[0], T{0});
    for (std::size_t i = 0; i < batch.contexts.size(); ++i) {
        T* sum = gradients[0].data() + batch.contexts[i] * embedding_;
        for (std::size_t j = 0; j < embedding_; ++j) sum[j] += delta_[i * embedding_ + j];
    }
    ready(0);
}

template class Model<float>;
template class Model<double>;

}  // namespace train
