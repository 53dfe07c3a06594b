#pragma once
// Lines that scripts/gpu-check reads from the output of a case. In a job of several ranks one of them prints.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/clock.hpp"

namespace ddp::test {

/// Reports a measured number, and nothing about it. `name` has underscores for blanks.
inline void figure(const std::string& name, double value, const char* unit) {
    std::printf("figure %s %.6g %s\n", name.c_str(), value, unit);
}
/// Reports a measured number that is expected to be `bound` at most. The script compares: a test has no timing asserts.
inline void figure_at_most(const std::string& name, double value, const char* unit, double bound) {
    std::printf("figure %s %.6g %s <= %.6g\n", name.c_str(), value, unit, bound);
}
/// Reports a measured number that is expected to be `bound` at least.
inline void figure_at_least(const std::string& name, double value, const char* unit, double bound) {
    std::printf("figure %s %.6g %s >= %.6g\n", name.c_str(), value, unit, bound);
}
/// Reports something else that is to be shown.
inline void fact(const std::string& text) { std::printf("fact %s\n", text.c_str()); }
/// Reports a part of the case that cannot be tried here, and why.
inline void not_tried(const std::string& text) { std::printf("not tried: %s\n", text.c_str()); }

/// Returns `full`, or `few` where the script makes a short run.
inline int repetitions(int full, int few) { return std::getenv("GPU_CHECK_SHORT") == nullptr ? full : few; }

inline double seconds_since(ddprun::TimePoint begin) {
    return std::chrono::duration<double>(ddprun::Clock::now() - begin).count();
}

/// Returns the value below which `share` of the values are. Precondition: there are some.
inline double quantile(std::vector<double> values, double share) {
    std::sort(values.begin(), values.end());
    return values[std::min(values.size() - 1, static_cast<std::size_t>(share * static_cast<double>(values.size())))];
}

}  // namespace ddp::test
