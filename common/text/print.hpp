#pragma once
// What a program was asked to print, such as its --help: a text that nobody gets is an error like any other.

#include <string_view>

#include "common/error.hpp"

namespace ddprun {

/// Writes `text` to stdout, all of it. Errors: errno, naming stdout.
[[nodiscard]] Result<void> print_to_stdout(std::string_view text);

}  // namespace ddprun
