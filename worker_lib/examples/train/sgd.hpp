#pragma once
// Sgd: stochastic gradient descent with momentum. (Adam divides by the size of each gradient, which would make rounding
// differences between 1 and 8 ranks visible where gradients are tiny.)

#include <cstddef>
#include <span>
#include <vector>

namespace train {

class Sgd {
public:
    explicit Sgd(std::span<const std::span<float>> parameters);

    /// Makes one step: velocity = momentum × velocity + gradient; parameter -= rate × velocity.
    void step(std::span<const std::span<float>> gradients, float rate);

    /// Returns the velocity of parameter i. It is part of a checkpoint: else a resumed run would not continue the same
    /// curve.
    [[nodiscard]] std::span<float> velocity(std::size_t i) { return velocities_[i]; }

private:
    std::vector<std::span<float>> parameters_;
    std::vector<std::vector<float>> velocities_;
};

/// Returns the learning rate of a step: it grows linearly over the first steps, then is `rate`.
[[nodiscard]] float warmed_up(float rate, std::size_t step);

}  // namespace train
