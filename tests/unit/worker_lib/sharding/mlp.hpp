#pragma once
// A small network whose training is given in closed form: three layers of 12, 10, 7 and 3 values with tanh between
// them, without random numbers. Its losses were computed in f64 by two programs of their own.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ddp/sharding.hpp"

namespace ddp::testing {

inline constexpr std::array<std::size_t, 4> kWidths{12, 10, 7, 3};
inline constexpr std::size_t kLayers = 3;
inline constexpr std::size_t kSamples = 12;  // of all ranks in one step

/// Returns the elements of a buffer of T or BF16.
template <typename T>
std::vector<T> read(const ConstBuffer& buffer) {
    std::vector<T> values;
    if (buffer.dtype == DType::BF16)
        for (const BFloat16 value : buffer.as<BFloat16>()) values.push_back(static_cast<T>(float{value}));
    else
        for (const T value : buffer.as<T>()) values.push_back(value);
    return values;
}

/// Writes the values to a buffer of T or BF16.
template <typename T>
void write(const std::vector<T>& values, const Buffer& buffer) {
    if (buffer.dtype == DType::BF16)
        for (std::size_t i = 0; i < values.size(); ++i)
            buffer.as<BFloat16>()[i] = BFloat16(static_cast<float>(values[i]));
    else
        std::ranges::copy(values, buffer.as<T>().begin());
}

template <typename T>
class Mlp {
public:
    /// Takes every `ranks`-th sample from `rank` on.
    Mlp(std::size_t rank, std::size_t ranks) : rank_(rank), ranks_(ranks) {}

    [[nodiscard]] static std::vector<std::vector<ParamSpec>> units() {
        std::vector<std::vector<ParamSpec>> units;
        for (std::size_t l = 0; l < kLayers; ++l) {
            const std::string layer = "fc" + std::to_string(l);
            units.push_back({{layer + ".weight", kWidths[l] * kWidths[l + 1], dtype_of<T>},
                             {layer + ".bias", kWidths[l + 1], dtype_of<T>}});
        }
        return units;
    }

    /// Writes the first values of elements `begin` … of a parameter.
    static void fill(std::size_t param, std::size_t begin, Buffer part) {
        const std::size_t l = param / 2;
        const std::span<T> values = part.as<T>();
        for (std::size_t k = 0; k < values.size(); ++k) {
            const auto i = static_cast<double>(param % 2 == 0 ? (begin + k) / kWidths[l] : begin + k);
            const auto j = static_cast<double>((begin + k) % kWidths[l]);
            const auto layer = static_cast<double>(l);
            values[k] = static_cast<T>(param % 2 == 0 ? 0.5 * std::sin(1 + 0.7 * i + 1.3 * j + layer)
                                                      : 0.1 * std::cos(i + layer));
        }
    }

    /// Begins a step with this rank's samples.
    void begin(std::size_t step) {
        activations_.assign(kLayers + 1, {});
        targets_.clear();
        for (std::size_t n = rank_; n < kSamples; n += ranks_) {
            const auto t = static_cast<double>(n + kSamples * step);
            for (std::size_t j = 0; j < kWidths[0]; ++j)
                activations_[0].push_back(static_cast<T>(std::sin(0.3 * t + 0.5 * static_cast<double>(j))));
            for (std::size_t k = 0; k < kWidths[kLayers]; ++k)
                targets_.push_back(static_cast<T>(std::cos(0.2 * t - 0.4 * static_cast<double>(k))));
        }
    }

    void forward(std::size_t l, const ShardedParameters::Scope& unit) {
        const std::vector<T> weight = read<T>(unit.param(0)), bias = read<T>(unit.param(1));
        const std::size_t in = kWidths[l], out = kWidths[l + 1];
        for (std::size_t n = 0; n < samples(); ++n) {
            for (std::size_t i = 0; i < out; ++i) {
                T sum = bias[i];
                for (std::size_t j = 0; j < in; ++j) sum += weight[i * in + j] * activations_[l][n * in + j];
                activations_[l + 1].push_back(l + 1 < kLayers ? std::tanh(sum) : sum);
            }
        }
    }

    /// Returns the mean over this rank's samples, and prepares backward.
    [[nodiscard]] double loss() {
        const std::vector<T>& output = activations_[kLayers];
        deltas_.assign(output.size(), T{});
        double sum = 0;
        for (std::size_t k = 0; k < output.size(); ++k) {
            const double difference = double{output[k]} - double{targets_[k]};
            sum += difference * difference;
            deltas_[k] = static_cast<T>(2 * difference / static_cast<double>(output.size()));
        }
        return sum / static_cast<double>(output.size());
    }

    void backward(std::size_t l, const ShardedParameters::GradScope& unit, T scale = 1) {
        const std::vector<T> weight = read<T>(unit.param(0));
        std::vector<T> weight_grad(weight.size()), bias_grad(kWidths[l + 1]);
        const std::size_t in = kWidths[l], out = kWidths[l + 1];
        std::vector<T> below(samples() * in, T{});
        for (std::size_t n = 0; n < samples(); ++n) {
            for (std::size_t i = 0; i < out; ++i) {
                const T delta = deltas_[n * out + i];
                bias_grad[i] += scale * delta;
                for (std::size_t j = 0; j < in; ++j) {
                    weight_grad[i * in + j] += scale * delta * activations_[l][n * in + j];
                    below[n * in + j] += delta * weight[i * in + j];
                }
            }
        }
        for (std::size_t k = 0; l > 0 && k < below.size(); ++k) below[k] *= 1 - activations_[l][k] * activations_[l][k];
        deltas_ = std::move(below);
        write(weight_grad, unit.grad(0));
        write(bias_grad, unit.grad(1));
    }

private:
    [[nodiscard]] std::size_t samples() const { return activations_[0].size() / kWidths[0]; }

    std::size_t rank_, ranks_;
    std::vector<std::vector<T>> activations_;
    std::vector<T> targets_, deltas_;
};

/// An optimiser of one rank's part.
template <typename T>
class Optimizer {
public:
    enum class Kind { kSgd, kAdamW };
    explicit Optimizer(Kind kind, std::size_t size) : kind_(kind), first_(size), second_(size) {}

    void update(const ShardedParameters& model) {
        ++steps_;
        std::size_t k = 0;
        for (const Shard& shard : model.shards()) {
            const std::span<T> values = shard.values.as<T>(), grads = shard.grad.as<T>();
            for (std::size_t i = 0; i < values.size(); ++i, ++k) update(values[i], grads[i], k);
        }
    }

private:
    void update(T& value, T grad, std::size_t k) {
        if (kind_ == Kind::kSgd) {
            first_[k] = static_cast<T>(0.9) * first_[k] + grad;
            value -= static_cast<T>(0.1) * first_[k];
            return;
        }
        constexpr double kRate = 0.01, kDecay = 0.01, kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;
        first_[k] = static_cast<T>(kBeta1 * double{first_[k]} + (1 - kBeta1) * double{grad});
        second_[k] = static_cast<T>(kBeta2 * double{second_[k]} + (1 - kBeta2) * double{grad} * double{grad});
        const double mean = double{first_[k]} / (1 - std::pow(kBeta1, steps_));
        const double square = double{second_[k]} / (1 - std::pow(kBeta2, steps_));
        value = static_cast<T>(double{value} * (1 - kRate * kDecay) - kRate * mean / (std::sqrt(square) + kEpsilon));
    }

    const Kind kind_;
    std::vector<T> first_, second_;
    int steps_ = 0;
};

}  // namespace ddp::testing
