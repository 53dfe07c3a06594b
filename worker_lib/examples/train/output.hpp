#pragma once
// The result on stdout: said, or said that it is lost.

#include <string>

namespace train {

/// Writes `text` to stdout, all of it. The exit code: 0, or 1 after a message when it could not be written.
[[nodiscard]] int print_result(const std::string& text);

}  // namespace train
