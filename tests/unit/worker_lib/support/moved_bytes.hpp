#pragma once
// Data for the tests of data movement: elements that identify their source, destination and position.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ddp/types.hpp"

namespace ddp::testing {

using Counts = std::vector<std::size_t>;

/// Elements [0, count) of the part that `source` has for `destination` (-1: for all ranks), pseudo-random.
inline std::vector<std::byte> part_of(int source, int destination, std::size_t count, DType type) {
    std::vector<std::byte> bytes(count * size_of(type));
    std::uint64_t state = 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(1 + source * 1000 + destination + 1);
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(state)) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        const std::uint64_t mixed = state ^ (state >> 32);  // the low bits of the state itself repeat soon
        std::memcpy(&bytes[i], &mixed, std::min(sizeof(mixed), bytes.size() - i));
    }
    return bytes;
}

inline void append(std::vector<std::byte>& whole, const std::vector<std::byte>& part) {
    whole.insert(whole.end(), part.begin(), part.end());
}

/// Returns where memory differs from what is expected; empty if it does not.
inline std::string difference(const std::byte* memory, const std::vector<std::byte>& expected) {
    if (expected.empty() || std::memcmp(memory, expected.data(), expected.size()) == 0) return {};
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (memory[i] != expected[i]) return "byte " + std::to_string(i) + " of " + std::to_string(expected.size());
    }
    return {};
}

/// Counts that differ by rank, some of them 0, about `scale` on average.
inline Counts uneven_counts(int ranks, std::size_t scale) {
    Counts counts;
    for (int rank = 0; rank < ranks; ++rank) {
        counts.push_back(rank % 3 == 1 ? 0 : scale * static_cast<std::size_t>(rank % 4) + 1);
    }
    return counts;
}

}  // namespace ddp::testing
