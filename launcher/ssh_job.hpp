#pragma once
// Implements --hosts: starts ddprun on each host by ssh, passes signals on to them and their output through, and ends
// all when one cannot be reached. Called by launch(); main thread only.

#include <string>
#include <string_view>
#include <vector>

#include "common/error.hpp"
#include "common/system/environment.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

/// Runs the job on the hosts of `options` with `arguments`, those of this ddprun. Returns its exit code. Errors:
/// kUsage, there is no job key. Throws ErrorException when the system refuses a process.
[[nodiscard]] Result<int> run_ssh_job(const Options& options, const std::vector<std::string>& arguments,
                                      const Environment& environment);

/// Returns `text` as one word for a shell. Pure.
[[nodiscard]] std::string shell_word(std::string_view text);

}  // namespace ddprun::launcher
