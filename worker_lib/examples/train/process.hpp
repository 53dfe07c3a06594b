#pragma once
// This process as its launcher and its user see it: rank, threads, result.

#include <cstdlib>
#include <string>

#include "ddp/context.hpp"

namespace train {

/// Returns RANK as the launcher set it, for messages before there is a ddp::Context and after it has ended; "0" without
/// a launcher.
[[nodiscard]] inline std::string launcher_rank() {
    const char* const rank = std::getenv("RANK");
    return rank != nullptr ? rank : "0";
}

/// Returns OMP_NUM_THREADS if the launcher or user has set it; else the CPUs that this process may use, divided by the
/// ranks of its node.
[[nodiscard]] int default_threads(const ddp::Context& context);

/// Sets the threads of all matrix products of this process.
void use_threads(int threads);

/// Writes all of `text` to stdout. Returns the exit code: 0, or 1 after a message when it could not be written.
[[nodiscard]] int print_result(const std::string& text);

}  // namespace train
