#pragma once
// The address that this host publishes to other nodes: that of the interface that reached the store, or of one that
// DDPRUN_SOCKET_IFNAME names.

#include <optional>
#include <string>
#include <vector>

namespace ddp::detail {

/// An address of an interface that is up; link-local ones of IPv6 are left out.
struct InterfaceAddress {
    std::string interface;
    std::string address;  ///< numeric
};

/// Returns the addresses of this host, in the order of the kernel.
[[nodiscard]] std::vector<InterfaceAddress> interface_addresses();

/// Returns the first of `addresses` on an interface that `wanted` names, in the order of the names: "eth,ib" matches
/// the beginning of a name, "=eth1,ib0" the whole name. If an interface has both families, prefers that of `usual`.
/// Without `wanted` returns `usual`. Throws Error{Environment} that lists the interfaces. Pure.
[[nodiscard]] std::string choose_address(const std::optional<std::string>& wanted, const std::string& usual,
                                         const std::vector<InterfaceAddress>& addresses);

}  // namespace ddp::detail
