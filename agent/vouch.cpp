#include "agent/vouch.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <optional>

#include "common/system/peer_owner.hpp"

namespace ddprun::agent {
namespace {

std::optional<sockaddr_storage> address_of(const std::string& numeric, int port) {
    sockaddr_storage address{};
    const auto network_port = htons(static_cast<std::uint16_t>(port));
    auto& v4 = reinterpret_cast<sockaddr_in&>(address);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
    if (::inet_pton(AF_INET, numeric.c_str(), &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
        v4.sin_port = network_port;
        return address;
    }
    if (::inet_pton(AF_INET6, numeric.c_str(), &v6.sin6_addr) != 1) return std::nullopt;
    v6.sin6_family = AF_INET6;
    v6.sin6_port = network_port;
    return address;
}

}  // namespace

protocol::Vouch vouch_for(const protocol::VouchRequest& request) {
    protocol::Vouch vouch{.request = request.request, .own_user = false, .owner = ""};
    const auto client = address_of(request.client_address, request.client_port);
    const auto store = address_of(request.store_address, request.store_port);
    if (!client || !store) return vouch;
    const PeerOwner owner = PeerOwners().find(*client, *store);
    if (owner.kind != PeerOwner::Kind::kUser) return vouch;
    vouch.own_user = owner.uid == ::geteuid();
    vouch.owner = to_string(owner);
    return vouch;
}

}  // namespace ddprun::agent
