#pragma once
// Reads small files of the kernel: /proc and control groups.

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace ddprun {

/// Returns the contents of a file; empty if it cannot be read.
[[nodiscard]] inline std::string content_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream content;
    content << file.rdbuf();  // an iterator would throw if the process whose file it is ends meanwhile
    return std::move(content).str();
}

/// Returns the number with which a file begins; nullopt: it begins otherwise ("max"), or cannot be read.
template <typename Number>
[[nodiscard]] std::optional<Number> number_in(const std::filesystem::path& path) {
    std::ifstream file(path);
    Number number{};
    if (file >> number) return number;
    return std::nullopt;
}

}  // namespace ddprun
