#pragma once
// Stochastic gradient descent with momentum. (Not Adam: it divides by the size of each gradient, which makes rounding
// differences between 1 and 8 ranks visible where gradients are tiny.)

#include <cstddef>
#include <span>
#include <vector>

namespace train {

class Sgd {
public:
    explicit Sgd(std::span<const std::span<float>> parameters);

    /// velocity = momentum × velocity + gradient; parameter -= rate × velocity.
    void step(std::span<const std::span<float>> gradients, float rate);

    /// Part of a checkpoint: without it a resumed run would not continue the same curve.
    [[nodiscard]] std::span<float> velocity(std::size_t i) { return velocities_[i]; }

private:
    std::vector<std::span<float>> parameters_;
    std::vector<std::vector<float>> velocities_;
};

/// Grows linearly over the first steps, then is `rate`.
[[nodiscard]] float warmed_up(float rate, std::size_t step);

}  // namespace train
