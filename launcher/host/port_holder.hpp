#pragma once
// Who listens on a TCP port of this machine: so that "address already in use" can name the process. Reads /proc only.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "common/endpoint.hpp"

namespace ddprun::launcher {

struct PortHolder {
    std::optional<pid_t> pid;   ///< absent when its process cannot be looked at: another user's, or another pid namespace's
    std::string command;        ///< its arguments, shortened; empty without a pid
    std::string program;        ///< its name as ps(1) shows it; empty without a pid
    uid_t uid = 0;              ///< owner of the socket
};

/// The listener that keeps others from binding `endpoint` (numeric address); a listener on all interfaces does too.
[[nodiscard]] std::optional<PortHolder> find_port_holder(const Endpoint& endpoint);

/// "pid 4242 (python3 -m http.server)", or "a process of user 1000".
[[nodiscard]] std::string to_string(const PortHolder& holder);

}  // namespace ddprun::launcher
