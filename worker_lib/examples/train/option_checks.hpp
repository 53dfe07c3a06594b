#pragma once
// What is wrong with a command line, in words that say what would be right. CLI11's own are about its types.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace train {

/// Empty if `text` is such a number, else what it should be.
[[nodiscard]] std::string check_whole_number(const std::string& text, std::uint64_t least, std::uint64_t most);
[[nodiscard]] std::string check_positive(const std::string& text);
[[nodiscard]] std::string check_one_of(const std::string& text, std::span<const std::string> words);

/// The program's arguments with dashes in the names of options, however they were typed: --global_batch=8 is
/// --global-batch=8.
[[nodiscard]] std::vector<std::string> with_dashes(int argc, const char* const* argv);

/// About the arguments that no option took: the first option among them, with the known one that it resembles.
[[nodiscard]] std::string complain_about(const std::vector<std::string>& leftover, std::span<const std::string> known);

}  // namespace train
