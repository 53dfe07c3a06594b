#pragma once
// The one clock of the benchmark: monotonic nanoseconds.

#include <cstdint>
#include <ctime>

namespace ddprun::bench {

inline std::uint64_t now_ns() {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return std::uint64_t(t.tv_sec) * 1'000'000'000 + std::uint64_t(t.tv_nsec);
}

}  // namespace ddprun::bench
