#pragma once
// Counts what a process holds, which must be the same before and after a test.

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace ddp::testing {

inline std::size_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// Counts the mappings of memory that the ranks of a group share.
inline std::size_t shared_mappings() {
    std::ifstream maps("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);) count += line.find("memfd:ddp") != std::string::npos ? 1 : 0;
    return count;
}

}  // namespace ddp::testing
