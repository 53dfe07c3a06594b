#pragma once
// ddprun from argv to exit code: what runs where, in which order. Everything it calls can be tested without it.

#include <string>
#include <vector>

namespace ddprun::launcher {

/// `arguments` without argv[0]. Forks on the way, so that it returns in the agent's process or in the launcher of an emulated
/// cluster, with the exit code of ddprun (docs/exit-codes.md); the process that it was called in may be the guard by then.
/// Usage errors are printed here. Main thread, before any other thread exists.
[[nodiscard]] int launch(const std::vector<std::string>& arguments);

}  // namespace ddprun::launcher
