#pragma once
// Medians and percentiles of what was measured.

#include <algorithm>
#include <cmath>
#include <vector>

namespace ddprun::bench {

/// The value below which `fraction` of `samples` lie; NaN without samples. Reorders them.
template <typename T>
[[nodiscard]] double percentile(std::vector<T>& samples, double fraction) {
    if (samples.empty()) return std::nan("");
    const auto index = std::min(samples.size() - 1, std::size_t(fraction * double(samples.size())));
    std::nth_element(samples.begin(), samples.begin() + std::ptrdiff_t(index), samples.end());
    return double(samples[index]);
}

[[nodiscard]] inline double median(std::vector<double> samples) {
    std::erase_if(samples, [](double sample) { return std::isnan(sample); });
    if (samples.empty()) return std::nan("");
    const double upper = percentile(samples, 0.5);
    if (samples.size() % 2 == 1) return upper;
    return (upper + *std::max_element(samples.begin(), samples.begin() + std::ptrdiff_t(samples.size() / 2))) / 2;
}

}  // namespace ddprun::bench
