#pragma once
// Prints requested output, such as --help. Its loss is an error (exit_code::kOutput).

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "common/error.hpp"

namespace ddprun {

/// Writes all of `text` to stdout. Errors: errno, with a message that names stdout.
[[nodiscard]] inline Result<void> print_to_stdout(std::string_view text) {
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    if (written) return {};
    return system_error("cannot write to stdout", errno);
}

}  // namespace ddprun
