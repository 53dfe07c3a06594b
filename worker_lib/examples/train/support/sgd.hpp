#pragma once
// Stochastic gradient descent with momentum. (Adam divides by the size of each gradient, which would make rounding
// differences between 1 and 8 ranks visible where gradients are tiny.)

#include <cstddef>
#include <span>

namespace train {

/// Makes one step of one parameter: velocity = 0.9 × velocity + gradient; parameter -= rate × velocity.
inline void sgd_step(std::span<float> parameter, std::span<float> velocity, std::span<const float> gradient,
                     float rate) {
    for (std::size_t i = 0; i < parameter.size(); ++i) {
        velocity[i] = 0.9f * velocity[i] + gradient[i];
        parameter[i] -= rate * velocity[i];
    }
}

}  // namespace train
