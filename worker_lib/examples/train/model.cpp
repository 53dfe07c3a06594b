#include "train/model.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "train/blas.hpp"

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

/// Computes rows = tanh(rows + bias), for each row of bias.size() numbers.
template <typename T>
void add_bias_and_tanh(std::vector<T>& rows, const std::vector<T>& bias) {
    for (std::size_t start = 0; start < rows.size(); start += bias.size()) {
        for (std::size_t j = 0; j < bias.size(); ++j) rows[start + j] = std::tanh(rows[start + j] + bias[j]);
    }
}

template <typename T>
void sum_rows(const std::vector<T>& rows, std::span<T> sum) {
    std::ranges::fill(sum, T{0});
    for (std::size_t start = 0; start < rows.size(); start += sum.size()) {
        for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += rows[start + j];
    }
}

/// Passes derivatives back through tanh, by tanh' = 1 - tanh².
template <typename T>
void through_tanh(std::vector<T>& delta, const std::vector<T>& activation) {
    for (std::size_t i = 0; i < delta.size(); ++i) delta[i] *= 1 - activation[i] * activation[i];
}

}  // namespace

template <typename T>
Model<T>::Model(const ModelShape& shape, std::uint64_t seed) : shape_(shape) {
    std::mt19937_64 random(seed);
    const auto weights = [&](Parameter which, std::size_t inputs, std::size_t outputs) {
        parameters_[which].resize(inputs * outputs);
        fill_uniform(parameters_[which], std::sqrt(3.0 / static_cast<double>(inputs)), random);  // keeps the variance
    };
    parameters_[kEmbedding].resize(kSymbols * shape.embedding);
    fill_uniform(parameters_[kEmbedding], std::sqrt(3.0), random);
    weights(kWeight1, input_size(), shape.hidden1);
    weights(kWeight2, shape.hidden1, shape.hidden2);
    parameters_[kBias1].resize(shape.hidden1);
    parameters_[kBias2].resize(shape.hidden2);
    parameters_[kWeight3].resize(shape.hidden2 * kSymbols);  // zero: all bytes equally likely, a loss of log 256
    parameters_[kBias3].resize(kSymbols);
}

template <typename T>
std::size_t Model<T>::parameter_count() const {
    std::size_t count = 0;
    for (const auto& parameter : parameters_) count += parameter.size();
    return count;
}

template <typename T>
void Model<T>::embed(const Batch& batch) {
    input_.resize(batch.size() * input_size());
    for (std::size_t i = 0; i < batch.contexts.size(); ++i) {
        const T* vector = parameters_[kEmbedding].data() + batch.contexts[i] * shape_.embedding;
        std::copy_n(vector, shape_.embedding, input_.data() + i * shape_.embedding);
    }
}

template <typename T>
double Model<T>::forward(const Batch& batch) {
    const std::size_t rows = batch.size();
    const auto layer = [&](const std::vector<T>& in, std::size_t in_size, Parameter weight, std::size_t out_size,
                           std::vector<T>& out) {
        out.resize(rows * out_size);
        gemm(Op::kNormal, Op::kNormal, rows, out_size, in_size, in.data(), parameters_[weight].data(), out.data());
    };
    embed(batch);
    layer(input_, input_size(), kWeight1, shape_.hidden1, hidden1_);
    add_bias_and_tanh(hidden1_, parameters_[kBias1]);
    layer(hidden1_, shape_.hidden1, kWeight2, shape_.hidden2, hidden2_);
    add_bias_and_tanh(hidden2_, parameters_[kBias2]);
    layer(hidden2_, shape_.hidden2, kWeight3, kSymbols, output_);
    return softmax(batch);
}

/// Turns output_ from scores into probabilities and returns the loss.
template <typename T>
double Model<T>::softmax(const Batch& batch) {
    const std::vector<T>& bias = parameters_[kBias3];
    double loss = 0;
    for (std::size_t row = 0; row < batch.size(); ++row) {
        const std::span<T> score(output_.data() + row * kSymbols, kSymbols);
        for (std::size_t j = 0; j < kSymbols; ++j) score[j] += bias[j];
        const T largest = *std::ranges::max_element(score);  // so that exp does not overflow
        const T target = score[batch.targets[row]] - largest;
        T total = 0;
        for (T& s : score) total += s = std::exp(s - largest);
        for (T& s : score) s /= total;
        loss += static_cast<double>(std::log(total) - target);
    }
    return loss;
}

template <typename T>
void Model<T>::backward(const Batch& batch, std::span<const std::span<T>> gradients,
                        const std::function<void(std::size_t)>& ready) {
    const std::size_t rows = batch.size();
    // Per layer: first the gradients, so that they can be sent; then the derivatives for the layer below.
    const auto layer_gradients = [&](const std::vector<T>& in, std::size_t in_size, const std::vector<T>& delta,
                                     std::size_t out_size, Parameter weight, Parameter bias) {
        sum_rows(delta, gradients[bias]);
        ready(bias);
        gemm(Op::kTransposed, Op::kNormal, in_size, out_size, rows, in.data(), delta.data(), gradients[weight].data());
        ready(weight);
    };
    const auto pass_down = [&](const std::vector<T>& delta, std::size_t out_size, Parameter weight, std::size_t in_size,
                               std::vector<T>& delta_below) {
        delta_below.resize(rows * in_size);
        gemm(Op::kNormal, Op::kTransposed, rows, in_size, out_size, delta.data(), parameters_[weight].data(),
             delta_below.data());
    };

    std::vector<T>& delta3 = output_;  // softmax with cross entropy: probability minus truth, per window of the mean
    for (std::size_t row = 0; row < rows; ++row) delta3[row * kSymbols + batch.targets[row]] -= 1;
    for (T& value : delta3) value /= static_cast<T>(rows);

    layer_gradients(hidden2_, shape_.hidden2, delta3, kSymbols, kWeight3, kBias3);
    pass_down(delta3, kSymbols, kWeight3, shape_.hidden2, delta2_);
    through_tanh(delta2_, hidden2_);
    layer_gradients(hidden1_, shape_.hidden1, delta2_, shape_.hidden2, kWeight2, kBias2);
    pass_down(delta2_, shape_.hidden2, kWeight2, shape_.hidden1, delta1_);
    through_tanh(delta1_, hidden1_);
    layer_gradients(input_, input_size(), delta1_, shape_.hidden1, kWeight1, kBias1);
    pass_down(delta1_, shape_.hidden1, kWeight1, input_size(), delta_input_);
    embedding_gradient(batch, gradients[kEmbedding]);
    ready(kEmbedding);
}

template <typename T>
void Model<T>::embedding_gradient(const Batch& batch, std::span<T> gradient) const {
    std::ranges::fill(gradient, T{0});
    for (std::size_t i = 0; i < batch.contexts.size(); ++i) {
        T* sum = gradient.data() + batch.contexts[i] * shape_.embedding;
        const T* delta = delta_input_.data() + i * shape_.embedding;
        for (std::size_t j = 0; j < shape_.embedding; ++j) sum[j] += delta[j];
    }
}

template class Model<float>;
template class Model<double>;

}  // namespace train
