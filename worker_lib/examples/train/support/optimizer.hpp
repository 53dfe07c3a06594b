#pragma once
// The optimisers, for whole parameters as well as for a rank's part of them: each element is updated by itself.

#include <cmath>
#include <cstddef>
#include <span>

namespace train {

enum class Optimizer { kSgd, kAdamW };

/// Returns the endings of the names under which checkpoints have the optimiser's arrays, one element per element of the
/// parameter in each.
inline std::span<const char* const> array_names(Optimizer optimizer) {
    static constexpr const char* kSgdNames[] = {".velocity"};
    static constexpr const char* kAdamWNames[] = {".exp_avg", ".exp_avg_sq"};
    if (optimizer == Optimizer::kSgd) return kSgdNames;
    return kAdamWNames;
}

inline constexpr double kMomentum = 0.9;
// Loshchilov & Hutter 2019, "Decoupled weight decay regularization", with PyTorch's defaults.
inline constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8, kWeightDecay = 0.01;

/// The factors of one step of AdamW, the same for all elements.
template <typename T>
struct AdamWFactors {
    T decay;            ///< of the parameter
    T rate;             ///< divided by the bias correction of the mean, which began at zero
    T root_correction;  ///< the root of the bias correction of the mean of squares
};

/// Returns the factors of a step, which counts from 1.
template <typename T>
AdamWFactors<T> adamw_factors(double rate, std::size_t step) {
    const auto t = static_cast<double>(step);
    return {static_cast<T>(1 - rate * kWeightDecay), static_cast<T>(rate / (1 - std::pow(kBeta1, t))),
            static_cast<T>(std::sqrt(1 - std::pow(kBeta2, t)))};
}

/// Stochastic gradient descent with momentum.
template <typename T>
void sgd_step(std::span<T> parameter, std::span<T> velocity, std::span<const T> gradient, T rate) {
    for (std::size_t i = 0; i < parameter.size(); ++i) {
        velocity[i] = static_cast<T>(kMomentum) * velocity[i] + gradient[i];
        parameter[i] -= rate * velocity[i];
    }
}

/// AdamW: steps in proportion to the mean of the gradients over the root of the mean of their squares. It divides by
/// the size of each gradient, so rounding differences between 1 and 8 ranks show where gradients are tiny.
template <typename T>
void adamw_step(std::span<T> parameter, std::span<T> mean, std::span<T> square, std::span<const T> gradient,
                const AdamWFactors<T>& factors) {
    for (std::size_t i = 0; i < parameter.size(); ++i) {
        mean[i] = static_cast<T>(kBeta1) * mean[i] + static_cast<T>(1 - kBeta1) * gradient[i];
        square[i] = static_cast<T>(kBeta2) * square[i] + static_cast<T>(1 - kBeta2) * gradient[i] * gradient[i];
        const T size = std::sqrt(square[i]) / factors.root_correction + static_cast<T>(kEpsilon);
        parameter[i] = factors.decay * parameter[i] - factors.rate * mean[i] / size;
    }
}

/// Makes one step of a parameter, or of a part of one.
/// first, second   the optimiser's arrays, in the order of array_names(); SGD has no second one
/// step            counts from 1
template <typename T>
void optimizer_step(Optimizer optimizer, std::span<T> parameter, std::span<T> first, std::span<T> second,
                    std::span<const T> gradient, T rate, std::size_t step) {
    if (optimizer == Optimizer::kSgd)
        sgd_step(parameter, first, gradient, rate);
    else
        adamw_step(parameter, first, second, gradient, adamw_factors<T>(static_cast<double>(rate), step));
}

}  // namespace train
