#pragma once
// Number of rounds of tests that inject faults: DDP_FAULT_ROUNDS, 1 by default.

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace ddp::testing {

inline int fault_rounds() {
    const char* const text = std::getenv("DDP_FAULT_ROUNDS");
    return text ? std::max(1, std::atoi(text)) : 1;
}

/// Another moment in each round, within an operation or two.
inline std::chrono::microseconds delay_of(int round) { return std::chrono::microseconds(round * 137 % 3000); }

}  // namespace ddp::testing
