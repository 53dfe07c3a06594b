#pragma once
// The command line of ddpctl.

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "common/endpoint.hpp"

namespace ddprun::ctl {

struct DumpOptions {
    std::optional<Endpoint> endpoint;  ///< absent: the one job of this user on this machine
    std::string output;                ///< folder for one file per rank; empty: none
    std::chrono::milliseconds timeout{5'000};
};

/// "there is no command 'dmup'. Did you mean dump?"; empty: it is one, or an option.
[[nodiscard]] std::string unknown_command(std::string_view typed);

/// What to do, or the exit code when that is all: after --help, --version, or a complaint on stderr.
[[nodiscard]] std::variant<DumpOptions, int> parse_options(int argc, const char* const* argv);

}  // namespace ddprun::ctl
