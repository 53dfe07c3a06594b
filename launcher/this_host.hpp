#pragma once
// Is a host that the user named this machine, and which address should a daemon here bind then? The decision is pure; the
// facts (interfaces, name resolution) are gathered apart from it.

#include <optional>
#include <string>
#include <vector>

namespace ddprun::launcher {

struct ThisHost {
    std::string name;                       ///< as gethostname(2) says
    std::vector<std::string> addresses;     ///< numeric, of interfaces that are up; no loopback, IPv4 before IPv6
};

/// What the kernel says about this machine now.
[[nodiscard]] ThisHost this_host();

/// The numeric addresses of a host name or numeric address; empty when nothing is known of it. May ask DNS and block.
[[nodiscard]] std::vector<std::string> resolve(const std::string& host);

/// The address to bind when `host`, which resolves to `resolved`, is this machine; nullopt when it is another one.
/// A numeric address, or a name of one of this machine's, is bound as it is. Our own name may resolve to a loopback address
/// (Debian installs 127.0.1.1): other nodes could not connect there, so the first address that they can reach is bound instead.
[[nodiscard]] std::optional<std::string> address_here(const std::string& host, const std::vector<std::string>& resolved,
                                                      const ThisHost& self);

[[nodiscard]] bool is_loopback(const std::string& address);
/// 0.0.0.0 and ::, which mean every interface.
[[nodiscard]] bool is_wildcard(const std::string& address);

/// Where a process of this machine connects to what listens at `bound` here. For a wildcard that is an address of ours that
/// other nodes can reach: workers are given the address at which their node has reached the daemon and tell it to others, and a
/// loopback address would mean something else to each of them. Loopback only when this machine has no other.
[[nodiscard]] std::string address_to_dial(const std::string& bound, const ThisHost& self);

}  // namespace ddprun::launcher
