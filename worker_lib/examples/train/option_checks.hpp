#pragma once
// Checks of the command line whose texts name the valid values. CLI11's own texts name C++ types. Pure.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace train {

// Each returns an empty text if `text` is valid, else one that names the valid values.
[[nodiscard]] std::string check_whole_number(const std::string& text, std::uint64_t min, std::uint64_t max);
[[nodiscard]] std::string check_positive(const std::string& text);
[[nodiscard]] std::string check_one_of(const std::string& text, std::span<const std::string> words);

/// Returns the program's arguments with dashes for underscores in the names of options: --global-batch=8 for
/// --global_batch=8.
[[nodiscard]] std::vector<std::string> with_dashes(int argc, const char* const* argv);

/// Returns the text about unexpected arguments: names the first option among them, and the known one that it resembles.
[[nodiscard]] std::string complain_about(const std::vector<std::string>& leftover, std::span<const std::string> known);

}  // namespace train
