#include "train/sgd.hpp"

#include <algorithm>

namespace train {
namespace {

constexpr float kMomentum = 0.9f;
constexpr std::size_t kWarmUpSteps = 20;

}  // namespace

Sgd::Sgd(std::span<const std::span<float>> parameters) : parameters_(parameters.begin(), parameters.end()) {
    for (const auto& parameter : parameters_) velocities_.emplace_back(parameter.size());
}

void Sgd::step(std::span<const std::span<float>> gradients, float rate) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        float* parameter = parameters_[i].data();
        float* velocity = velocities_[i].data();
        const float* gradient = gradients[i].data();
        for (std::size_t j = 0; j < parameters_[i].size(); ++j) {
            velocity[j] = kMomentum * velocity[j] + gradient[j];
            parameter[j] -= rate * velocity[j];
        }
    }
}

float warmed_up(float rate, std::size_t step) {
    return rate * static_cast<float>(std::min(step, kWarmUpSteps)) / static_cast<float>(kWarmUpSteps);
}

}  // namespace train
