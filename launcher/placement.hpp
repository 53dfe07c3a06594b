#pragma once
// Where this process stands in the job: which endpoint the nodes meet at, and whether the daemon is started here.
// Pure but for the question whether a host is this one, which the caller answers.

#include <functional>
#include <optional>
#include <string>

#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "launcher/options.hpp"

namespace ddprun::launcher {

struct Placement {
    enum class Part {
        kAlone,     ///< one node: start a daemon for it alone, on a free port
        kHost,      ///< the endpoint is this machine: start the daemon there, or join the one that is already there
        kJoin,      ///< the endpoint is another machine, which starts the daemon
        kEmulate,   ///< start a daemon and all nodes here
    };
    Part part = Part::kAlone;
    Endpoint endpoint;          ///< kAlone, kHost, kEmulate: numeric address to bind; kJoin: as the user wrote it
    std::string reason;         ///< one clause for the log
};

[[nodiscard]] std::string to_string(Placement::Part part);

/// The address to bind when a host is this machine, else nullopt; see address_here().
using AddressHere = std::function<std::optional<std::string>(const std::string& host)>;

/// The first rule that fits decides: --as-local-node, --local-nodes, --standalone, --rdzv-endpoint, --master-addr/--master-port,
/// one node alone, and for several nodes without an endpoint localhost:29400. Errors: Errc::kUsage.
[[nodiscard]] Result<Placement> place(const Options& options, const AddressHere& address_here);

}  // namespace ddprun::launcher
