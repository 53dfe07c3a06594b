#pragma once
// Writes the scripts of --print-completion, from the option table. Pure.

#include <string>
#include <string_view>

#include "common/error.hpp"

namespace ddprun::launcher {

/// The shells, in the form in which help and errors name them.
inline constexpr std::string_view kShells = "bash|zsh|fish|tcsh";

/// Returns the script with which `shell` completes the options of ddprun, the values of those that take a few words,
/// and files for the program and its arguments. Errors: Errc::kUsage for another shell.
[[nodiscard]] Result<std::string> completion_script(std::string_view shell);

}  // namespace ddprun::launcher
