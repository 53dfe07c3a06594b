#pragma once
// Parses the command line of ddpctl.

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "common/endpoint.hpp"
#include "rendezvous/protocol/inspection.hpp"

namespace ddprun::ctl {

/// The options of every command.
struct JobOptions {
    std::string typed;                 ///< the command, with its node if it has one, to show it in a line to copy
    std::optional<Endpoint> endpoint;  ///< absent: the one job of this user on this machine
    std::chrono::milliseconds timeout{5'000};
    bool insecure = false;  ///< no TLS, as in a job that was started with --insecure
};

/// The options of `ddpctl status`.
struct StatusOptions : JobOptions {
    bool all = false;    ///< show every node of a large job
    int decisions = 20;  ///< how many of the newest to show
};

/// The options of `ddpctl dump`.
struct DumpOptions : JobOptions {
    std::string output;  ///< folder for one file per rank; empty: none
};

/// The options of `ddpctl drain`, `ddpctl undrain` and `ddpctl preempt`.
struct OrderOptions : JobOptions {
    protocol::Order::Command command = protocol::Order::Command::kDrain;
    std::string node;
    bool wait = false;                                  ///< of drain: return when the node has no workers
    std::optional<std::chrono::milliseconds> deadline;  ///< of preempt: when workers that have not ended are stopped
};

/// The options of `ddpctl checkpoint`.
struct CheckpointOptions {
    std::string path;
};

/// Returns "there is no command 'dmup'. Did you mean dump?"; empty if it is a command or an option.
[[nodiscard]] std::string unknown_command(std::string_view typed);

/// Returns the options, or the code with which the program should exit: after --help or --version, whose text it prints
/// to stdout, or after a usage error, which it prints to stderr.
[[nodiscard]] std::variant<StatusOptions, DumpOptions, OrderOptions, CheckpointOptions, int> parse_options(
    int argc, const char* const* argv);

}  // namespace ddprun::ctl
