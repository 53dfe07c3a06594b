#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "support/blas.hpp"

namespace train {
namespace {

/// Turns each row from scores into probabilities. Returns the sum over the rows of -log p(target).
template <typename T>
double softmax(std::vector<T>& scores, std::size_t symbols, const std::vector<std::uint8_t>& targets) {
    double loss = 0;
    for (std::size_t row = 0; row < targets.size(); ++row) {
        const std::span<T> score(scores.data() + row * symbols, symbols);
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
std::vector<std::size_t> Layers<T>::dimensions(std::size_t parameter) const {
    if (parameter == 0) return {kSymbols, embedding_};
    const std::size_t layer = (parameter - 1) / 2;
    if (parameter % 2 == 0) return {size_[layer + 1]};
    return {size_[layer], size_[layer + 1]};
}

template <typename T>
std::size_t Layers<T>::count(std::size_t parameter) const {
    std::size_t count = 1;
    for (const std::size_t size : dimensions(parameter)) count *= size;
    return count;
}

template <typename T>
void Layers<T>::initialise(std::size_t parameter, std::size_t begin, std::uint64_t seed, std::span<T> values) const {
    const auto is_random = [](std::size_t i) { return i == 0 || (i % 2 == 1 && i != first_of(kCount - 1)); };
    // Biases stay zero, and so do the last weights: all bytes are equally likely, a loss of log 256.
    if (!is_random(parameter)) {
        std::ranges::fill(values, T{0});
        return;
    }
    std::mt19937_64 random(seed);
    std::size_t before = begin;
    for (std::size_t i = 0; i < parameter; ++i) before += is_random(i) ? count(i) : 0;
    random.discard(before);
    // Keeps the variance.
    const double bound = std::sqrt(parameter == 0 ? 3.0 : 3.0 / static_cast<double>(size_[(parameter - 1) / 2]));
    for (T& value : values) {  // uniform in ±bound. (std::uniform_real_distribution depends on the library.)
        const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
        value = static_cast<T>((2 * unit - 1) * bound);
    }
}

template <typename T>
void Layers<T>::forward(std::size_t layer, std::span<const std::span<const T>> parameters) {
    const std::span<const T> weights = parameters[parameters.size() - 2];
    const std::span<const T> biases = parameters.back();
    std::vector<T>& in = activations_[layer];
    if (layer == 0) {
        in.resize(batch_->size() * size_[0]);
        for (std::size_t i = 0; i < batch_->contexts.size(); ++i) {
            const T* vector = parameters[0].data() + batch_->contexts[i] * embedding_;
            std::copy_n(vector, embedding_, in.data() + i * embedding_);
        }
    }
    std::vector<T>& out = activations_[layer + 1];
    out.resize(batch_->size() * biases.size());
    gemm(Op::kNormal, Op::kNormal, batch_->size(), biases.size(), size_[layer], in.data(), weights.data(), out.data());
    for (std::size_t row = 0; row < out.size(); row += biases.size()) {
        for (std::size_t j = 0; j < biases.size(); ++j) out[row + j] += biases[j];
    }
    if (layer + 1 == kCount) return;
    for (T& value : out) value = std::tanh(value);
}

template <typename T>
double Layers<T>::loss() {
    return softmax(activations_[kCount], kSymbols, batch_->targets);
}

template <typename T>
void Layers<T>::begin_backward(double divisor) {
    delta_.swap(activations_[kCount]);  // softmax with cross entropy: probability minus truth
    for (std::size_t row = 0; row < batch_->size(); ++row) delta_[row * kSymbols + batch_->targets[row]] -= 1;
    for (T& value : delta_) value /= static_cast<T>(divisor);
}

template <typename T>
void Layers<T>::backward(std::size_t layer, std::span<const std::span<const T>> parameters,
                         std::span<const std::span<T>> gradients, const std::function<void(std::size_t)>& ready) {
    // First the gradients, so that they can be sent; then the derivatives for the layer below.
    const std::size_t rows = batch_->size();
    const std::size_t in = size_[layer];
    const std::size_t out = size_[layer + 1];
    const std::size_t weight = parameters.size() - 2;
    const std::size_t bias = parameters.size() - 1;
    std::ranges::fill(gradients[bias], T{0});
    for (std::size_t row = 0; row < delta_.size(); row += out) {
        for (std::size_t j = 0; j < out; ++j) gradients[bias][j] += delta_[row + j];
    }
    ready(first_of(layer) + bias);
    gemm(Op::kTransposed, Op::kNormal, in, out, rows, activations_[layer].data(), delta_.data(),
         gradients[weight].data());
    ready(first_of(layer) + weight);
    delta_below_.resize(rows * in);
    gemm(Op::kNormal, Op::kTransposed, rows, in, out, delta_.data(), parameters[weight].data(), delta_below_.data());
    delta_.swap(delta_below_);
    if (layer > 0) {
        const std::vector<T>& tanh = activations_[layer];
        for (std::size_t i = 0; i < delta_.size(); ++i) delta_[i] *= 1 - tanh[i] * tanh[i];
        return;
    }
    std::ranges::fill(gradients[0], T{0});
    for (std::size_t i = 0; i < batch_->contexts.size(); ++i) {
        T* sum = gradients[0].data() + batch_->contexts[i] * embedding_;
        for (std::size_t j = 0; j < embedding_; ++j) sum[j] += delta_[i * embedding_ + j];
    }
    ready(0);
}

template <typename T>
Model<T>::Model(const ModelShape& shape, std::uint64_t seed) : layers_(shape) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        parameters_[i].resize(layers_.count(i));
        layers_.initialise(i, 0, seed, parameters_[i]);
    }
}

template <typename T>
double Model<T>::forward(const Batch& batch) {
    layers_.begin(batch);
    for (std::size_t layer = 0; layer < Layers<T>::kCount; ++layer) layers_.forward(layer, of_layer(layer));
    return layers_.loss();
}

template <typename T>
void Model<T>::backward(const Batch& batch, double divisor, std::span<const std::span<T>> gradients,
                        const std::function<void(std::size_t)>& ready) {
    layers_.begin(batch);
    layers_.begin_backward(divisor);
    for (std::size_t layer = Layers<T>::kCount; layer-- > 0;) {
        const std::size_t first = Layers<T>::first_of(layer);
        const std::size_t count = Layers<T>::first_of(layer + 1) - first;
        layers_.backward(layer, of_layer(layer), gradients.subspan(first, count), ready);
    }
}

template class Layers<float>;
template class Layers<double>;
template class Model<float>;
template class Model<double>;

}  // namespace train
