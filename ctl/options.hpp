#pragma once
// Parses the command line of ddpctl.

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "common/endpoint.hpp"

namespace ddprun::ctl {

/// The options of `ddpctl dump`.
struct DumpOptions {
    std::optional<Endpoint> endpoint;  ///< absent: the one job of this user on this machine
    std::string output;                ///< folder for one file per rank; empty: none
    std::chrono::milliseconds timeout{5'000};
};

/// Returns "there is no command 'dmup'. Did you mean dump?"; empty if it is a command or an option.
[[nodiscard]] std::string unknown_command(std::string_view typed);

/// Returns the options, or the code with which the program should exit: after --help or --version, whose text it prints
/// to stdout, or after a usage error, which it prints to stderr.
[[nodiscard]] std::variant<DumpOptions, int> parse_options(int argc, const char* const* argv);

}  // namespace ddprun::ctl
