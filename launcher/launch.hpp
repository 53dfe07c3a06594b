#pragma once
// Runs ddprun from argv to exit code: decides which process does which part, and when. Called by main().

#include <string>
#include <vector>

namespace ddprun::launcher {

/// Runs ddprun with `arguments` (without argv[0]) and returns its exit code (docs/exit-codes.md). It forks: it returns
/// in the agent's process or in the launcher of an emulated cluster, while the calling process becomes the guard. Usage
/// errors are printed here. Main thread, before any other thread exists.
[[nodiscard]] int launch(const std::vector<std::string>& arguments);

}  // namespace ddprun::launcher
