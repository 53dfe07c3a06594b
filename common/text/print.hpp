#pragma once
// Prints requested output, such as --help. Its loss is an error (exit_code::kOutput).

#include <string_view>

#include "common/error.hpp"

namespace ddprun {

/// Writes all of `text` to stdout. Errors: errno, with a message that names stdout.
[[nodiscard]] Result<void> print_to_stdout(std::string_view text);

}  // namespace ddprun
