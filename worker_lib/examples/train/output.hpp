#pragma once
// print_result: writes the result to stdout, or reports that it is lost.

#include <string>

namespace train {

/// Writes all of `text` to stdout. Returns the exit code: 0, or 1 after a message when it could not be written.
[[nodiscard]] int print_result(const std::string& text);

}  // namespace train
