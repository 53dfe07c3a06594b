#pragma once
// The model of PowerSgd's tests: a matrix of 6 x 5 and three biases, with gradients that are sines.

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "ddp/ddp.hpp"

namespace ddp::testing::power_sgd {

using Values = std::vector<float>;

inline const std::vector<ddp::ParamSpec> kModel{{"weight", 30, ddp::DType::F32, 1, {6, 5}}, {"bias", 3}};

inline float gradient(std::size_t k, std::size_t step, int rank, double offset) {
    return static_cast<float>(
        std::sin(0.9 * static_cast<double>(k) + 0.5 * static_cast<double>(step) + 1.7 * rank + offset));
}

inline double norm(const Values& values) {
    double sum = 0;
    for (const float value : values) sum += double{value} * double{value};
    return std::sqrt(sum);
}

inline Values copy(std::span<const float> values) { return {values.begin(), values.end()}; }

inline void run_backward(ddp::GradientReducer& reducer, std::size_t step, int rank) {
    reducer.begin_backward();
    for (const std::size_t i : {1u, 0u}) {
        const std::span<float> values = reducer.grad<float>(i);
        for (std::size_t k = 0; k < values.size(); ++k) values[k] = gradient(k, step, rank, i == 0 ? 0.2 : 0.1);
        reducer.mark_ready(i);
    }
    reducer.finish_backward();
}

}  // namespace ddp::testing::power_sgd
