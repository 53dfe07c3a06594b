#pragma once
// The process that ssh starts on a host of --hosts: it runs the ddprun of that host, passes signals on to it, and ends
// it when the connection ends. Called by launch(); main thread.

#include <string_view>

namespace ddprun::launcher {

/// The only argument of that process.
inline constexpr std::string_view kSshNodeArgument = "--run-ssh-node";

/// Reads the request from stdin and runs it. Returns the exit code of the ddprun that it has started.
[[nodiscard]] int run_ssh_node();

}  // namespace ddprun::launcher
