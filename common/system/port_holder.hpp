#pragma once
// Finds the process that listens on a TCP port of this machine, for messages that the port is in use. Reads /proc.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "common/endpoint.hpp"

namespace ddprun {

/// The process that listens on a port.
struct PortHolder {
    std::optional<pid_t> pid;  ///< absent: it cannot be inspected (another user, another pid namespace)
    std::string command;       ///< its arguments, shortened; empty without a pid
    std::string program;       ///< its name as ps(1) shows it; empty without a pid
    uid_t uid = 0;             ///< owner of the socket
};

/// Returns the listener that prevents binding `endpoint` (numeric address); it may listen on all interfaces.
[[nodiscard]] std::optional<PortHolder> find_port_holder(const Endpoint& endpoint);

/// Returns what prevents binding `endpoint` (numeric address), and what to do: "held by pid 4242 (python3 -m
/// http.server). End that process, or choose another port (0: a free one)".
[[nodiscard]] std::string explain_port_in_use(const Endpoint& endpoint);

/// Returns "pid 4242 (python3 -m http.server)", perhaps with " of user 1000" behind it, or "a process of user 1000".
[[nodiscard]] std::string to_string(const PortHolder& holder);

}  // namespace ddprun
