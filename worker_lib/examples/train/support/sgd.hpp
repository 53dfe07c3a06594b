#pragma once
// Sgd: stochastic gradient descent with momentum. (Adam divides by the size of each gradient, which would make rounding
// differences between 1 and 8 ranks visible where gradients are tiny.)

#include <algorithm>
#include <span>
#include <vector>

namespace train {

class Sgd {
public:
    explicit Sgd(std::vector<std::span<float>> parameters) : parameters_(std::move(parameters)) {
        for (const auto& parameter : parameters_) velocities_.emplace_back(parameter.size());
    }

    /// Makes one step: velocity = 0.9 × velocity + gradient; parameter -= rate × velocity. The rate grows linearly over
    /// the first 20 steps.
    void step(std::size_t step, const std::vector<std::span<float>>& gradients, float rate) {
        rate = rate * std::min(static_cast<float>(step), 20.0f) / 20;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            float* parameter = parameters_[i].data();
            float* velocity = velocities_[i].data();
            const float* gradient = gradients[i].data();
            for (std::size_t j = 0; j < parameters_[i].size(); ++j) {
                velocity[j] = 0.9f * velocity[j] + gradient[j];
                parameter[j] -= rate * velocity[j];
            }
        }
    }

    /// Returns the velocity of parameter i. A checkpoint needs it, or a resumed run would continue another curve.
    [[nodiscard]] std::span<float> velocity(std::size_t i) { return velocities_[i]; }

private:
    std::vector<std::span<float>> parameters_;
    std::vector<std::vector<float>> velocities_;
};

}  // namespace train
