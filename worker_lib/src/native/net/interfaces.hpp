#pragma once
// Which of this host's addresses the other nodes are told: that of the interface that reached the store, or what
// DDPRUN_SOCKET_IFNAME says.

#include <optional>
#include <string>
#include <vector>

namespace ddp::detail {

/// An address of an interface that is up; link-local ones of IPv6 are left out.
struct InterfaceAddress {
    std::string interface;
    std::string address;  ///< numeric
};

/// Of this host, in the order of the kernel.
[[nodiscard]] std::vector<InterfaceAddress> interface_addresses();

/// The first of `addresses` on an interface that `wanted` names: "eth,ib" by how a name begins, "=eth1,ib0" by the
/// whole name; those named first come first. If an interface has both, an address of the family of `usual`, which is
/// the answer if nothing is wanted. Throws Error{Environment} that lists what there is. Pure.
[[nodiscard]] std::string choose_address(const std::optional<std::string>& wanted, const std::string& usual,
                                         const std::vector<InterfaceAddress>& addresses);

}  // namespace ddp::detail
