#pragma once
// Addresses and network interfaces of this machine.

#include <sys/socket.h>

#include <string>

namespace ddprun {

/// Returns "10.0.0.7" or "fd00::7"; empty: the address is of another family than IP.
[[nodiscard]] std::string numeric(const sockaddr* address);

/// Returns the numeric address of this machine from which the kernel sends to the numeric address `to`; empty: there is
/// no route. Sends nothing.
[[nodiscard]] std::string source_address_to(const std::string& to);

/// Returns the name of the interface that has the numeric address; empty: none has it, or it is a loopback address.
[[nodiscard]] std::string interface_with(const std::string& address);

}  // namespace ddprun
