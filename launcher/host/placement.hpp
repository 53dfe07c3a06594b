#pragma once
// Decides at which endpoint the nodes meet, and whether this process starts the daemon there. Pure: the caller passes
// in the function that decides whether a host is this machine. Called by launch().

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

/// The endpoint of the rendezvous, and the part that this process has in it.
struct Placement {
    enum class Part {
        kAlone,    ///< one node: start a daemon for it on a free port
        kHost,     ///< the endpoint is this machine: start the daemon there, or join a running one
        kJoin,     ///< the endpoint is another machine, which starts the daemon
        kEmulate,  ///< start a daemon and all nodes here
        kMeet,     ///< a meeting point decides which node hosts (launcher/job_meeting.hpp)
    };
    Part part = Part::kAlone;
    Endpoint
        endpoint;  ///< kAlone, kHost, kEmulate: numeric address to bind; kJoin: as the user wrote it; kMeet: the port
    std::string reason;  ///< of this choice, one clause for the log
    /// The host and port of --master-addr and --master-port, or of --rdzv-endpoint with names_static_master(), as the
    /// user wrote them, for MASTER_ADDR and MASTER_PORT; absent: they do not name the endpoint, or the port is 0.
    std::optional<Endpoint> master = {};
    /// Of an allocation: the daemon has one of these ports, the first that is free on its host; else empty.
    std::vector<std::uint16_t> ports = {};
};

/// Returns the address to bind when `host` is this machine, else nullopt; see address_here().
using AddressHere = std::function<std::optional<std::string>(const std::string& host)>;

/// Applies the first of these that is given: --as-local-node, --local-nodes, --standalone, etcd or --rdzv-dir,
/// --rdzv-endpoint,
/// --master-addr/--master-port, one node alone, the allocation of a scheduler, and for several nodes without an
/// endpoint localhost:29400. Errors: Errc::kUsage.
[[nodiscard]] Result<Placement> place(const Options& options, const AddressHere& address_here);

}  // namespace ddprun::launcher
