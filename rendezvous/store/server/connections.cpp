#include "rendezvous/store/server/connections.hpp"

#include <boost/asio/ip/address_v6.hpp>
#include <cstring>
#include <utility>

namespace ddprun::store {

PeerAddress address_of(const sockaddr_storage& peer) {
    PeerAddress address{};
    if (peer.ss_family == AF_INET6) {
        std::memcpy(address.data(), &reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr, address.size());
    } else {
        address[10] = address[11] = 0xff;
        std::memcpy(address.data() + 12, &reinterpret_cast<const sockaddr_in&>(peer).sin_addr, 4);
    }
    return address;
}

std::string text_of(const PeerAddress& address) {
    const boost::asio::ip::address_v6 v6(address);
    return v6.is_v4_mapped() ? make_address_v4(boost::asio::ip::v4_mapped, v6).to_string() : v6.to_string();
}

Connection& Connections::add(UniqueFd socket, const PeerAddress& peer, Decoder decoder) {
    auto made = std::make_unique<Connection>(
        Connection{.socket = std::move(socket), .peer = peer, .decoder = std::move(decoder)});
    if (free_slots_.empty()) {
        free_slots_.reserve(slots_.size() + 1);  // so that remove() needs no memory
        slots_.emplace_back();
        free_slots_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
    }
    ++by_peer_[peer];
    const std::uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    made->id = ConnectionId{++last_serial_ << kSlotBits | slot};
    ++size_;
    return *(slots_[slot] = std::move(made));
}

Connection* Connections::find(ConnectionId id) {
    const auto slot = static_cast<std::uint64_t>(id) & (kMax - 1);
    Connection* const found = slot < slots_.size() ? slots_[slot].get() : nullptr;
    return found && found->id == id ? found : nullptr;
}

void Connections::remove(Connection& connection) {
    set_held_bytes(connection, 0);
    set_in_multi_get(connection, false);
    set_mid_request(connection, false);
    const auto peer = by_peer_.find(connection.peer);
    if (--peer->second == 0) by_peer_.erase(peer);
    const auto slot = static_cast<std::uint64_t>(connection.id) & (kMax - 1);
    slots_[slot].reset();
    free_slots_.push_back(static_cast<std::uint32_t>(slot));
    --size_;
}

std::size_t Connections::count_from(const PeerAddress& peer) const {
    const auto found = by_peer_.find(peer);
    return found == by_peer_.end() ? 0 : found->second;
}

}  // namespace ddprun::store
