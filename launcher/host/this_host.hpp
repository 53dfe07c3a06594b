#pragma once
// Decides whether a host that the user named is this machine, and which address a daemon here binds then. The decision
// is pure; its facts (interfaces, name resolution) come from this_host() and
// addresses_of().

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "common/system/resolve.hpp"

namespace ddprun::launcher {

/// The name and the addresses of this machine.
struct ThisHost {
    std::string name;                    ///< as gethostname(2) says
    std::vector<std::string> addresses;  ///< numeric, of interfaces that are up; no loopback, IPv4 before IPv6
};

/// Returns the name of this machine; empty: it has none.
[[nodiscard]] std::string host_name();

/// Asks the kernel for this machine's name and addresses.
[[nodiscard]] ThisHost this_host();

/// Returns the name of a user, or its number as text if it has none.
[[nodiscard]] std::string user_name(uid_t uid);

/// Returns the numeric addresses of a host name or numeric address; empty: it is unknown. Blocks for `timeout` at most.
/// Errors: kTimeout, no name server has answered.
[[nodiscard]] Result<std::vector<std::string>> addresses_of(const std::string& host, std::chrono::seconds timeout,
                                                            LookUp look_up = ask_system);

/// Returns the address to bind when `host`, which resolves to `resolved`, is this machine; nullopt: it is another one.
/// A numeric address of this machine, or a name for one, is bound as it is. This machine's own name may resolve to a
/// loopback address (Debian installs 127.0.1.1), where other nodes cannot connect: then the result is the first address
/// that they can reach, unless the job is `alone` on this machine.
[[nodiscard]] std::optional<std::string> address_here(const std::string& host, const std::vector<std::string>& resolved,
                                                      const ThisHost& self, bool alone = false);

/// Returns `named` if processes of this machine reach the listener at `dialed` by that name, which resolves to
/// `resolved`, else `dialed`. A node that hosts the daemon cannot rely on the name: this machine's own name often
/// resolves to another loopback address, and a service address may lead elsewhere.
[[nodiscard]] std::string name_for_local_processes(const std::string& named, const std::vector<std::string>& resolved,
                                                   const std::string& dialed);

[[nodiscard]] inline bool is_loopback(const std::string& address) {
    return address.starts_with("127.") || address == "::1";
}
/// Returns whether `address` means every interface: 0.0.0.0 or ::.
[[nodiscard]] bool is_wildcard(const std::string& address);

/// Returns the address at which a process of this machine connects to a listener at `bound`. For a wildcard it is an
/// address that other nodes can reach as well, because workers get the address at which their node has reached the
/// daemon and pass it on to others. It is a loopback address only if this machine has no other.
[[nodiscard]] std::string address_to_dial(const std::string& bound, const ThisHost& self);

}  // namespace ddprun::launcher
