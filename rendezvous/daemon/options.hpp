#pragma once
// Parses the command line of ddprund into values.

#include <optional>
#include <string>
#include <variant>

#include "rendezvous/daemon/daemon.hpp"
#include "rendezvous/daemon/store_options.hpp"

namespace ddprun::daemon {

struct Options {
    DaemonConfig daemon;
    std::optional<StoreMode> store;  ///< --store: a store alone, and `daemon` has no meaning
    std::optional<int> ready_fd;  ///< an open descriptor: gets one line of JSON when the daemon listens, and is closed
    std::optional<int> starter_fd;  ///< reads end-of-file when the starter has ended, or why no further node will join
    bool standby = false;           ///< wait until the port is free, or the starter has ended
    std::string log_file;           ///< empty: stderr alone
    bool insecure = false;          ///< no TLS, even if other hosts can reach the daemon
    bool quiet = false;             ///< log warnings only, unless LOGLEVEL says otherwise
};

/// Returns the options, or the exit code of a program that ends here: it has printed --help or --version (0), or an
/// error of the command line (exit_code::kUsage).
[[nodiscard]] std::variant<Options, int> parse_options(int argc, const char* const* argv);

}  // namespace ddprun::daemon
