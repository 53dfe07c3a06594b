#pragma once
// Connections: owns the clients of one store server, found by number, and totals over all of them. Single owner.

#include <netinet/in.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/clock.hpp"
#include "common/system/unique_fd.hpp"
#include "rendezvous/store/codec/codec.hpp"
#include "rendezvous/store/codec/reply.hpp"
#include "rendezvous/store/engine/waits.hpp"

namespace ddprun::store {

/// An address in IPv6 form; an IPv4 address is mapped to it.
using PeerAddress = std::array<unsigned char, 16>;
[[nodiscard]] PeerAddress address_of(const sockaddr_storage& peer);
/// Returns "10.0.0.7" or "2001:db8::7".
[[nodiscard]] std::string text_of(const PeerAddress& address);

/// State of one client. Without a request in progress or a reply under way it owns no memory beside itself.
struct Connection {
    ConnectionId id{};
    UniqueFd socket;
    PeerAddress peer{};
    Decoder decoder;
    Reply output;                ///< what the kernel did not take yet
    bool sending = false;        ///< waits for room to send instead of for input
    bool pending = false;        ///< complete requests may wait in the decoder
    bool in_multi_get = false;   ///< the next of them is a further part of a MULTI_GET
    bool mid_request = false;    ///< waits for the rest of a request, since last_byte
    TimePoint last_byte;         ///< when `mid_request`
    std::size_t held_bytes = 0;  ///< as it was counted last
};

class Connections {
public:
    /// Adds a connection. Throws std::bad_alloc, and then nothing has changed.
    Connection& add(UniqueFd socket, const PeerAddress& peer, Decoder decoder);
    /// Returns null when the connection has been removed.
    [[nodiscard]] Connection* find(ConnectionId id);
    /// Closes the connection and takes it out of all totals.
    void remove(Connection& connection);

    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] std::size_t count_from(const PeerAddress& peer) const;
    /// Calls visit(Connection&) for each connection, which `visit` may remove.
    template <typename Visit>
    void for_each(Visit visit) {
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            if (slots_[i]) visit(*slots_[i]);
        }
    }

    // These set the members of Connection that have a total.

    void set_held_bytes(Connection& connection, std::size_t bytes) {
        held_bytes_ += bytes - std::exchange(connection.held_bytes, bytes);
    }
    void set_in_multi_get(Connection& connection, bool value) {
        if (value != std::exchange(connection.in_multi_get, value)) value ? ++in_multi_get_ : --in_multi_get_;
    }
    void set_mid_request(Connection& connection, bool value) {
        if (value != std::exchange(connection.mid_request, value)) value ? ++mid_request_ : --mid_request_;
    }
    [[nodiscard]] std::size_t held_bytes() const { return held_bytes_; }
    /// Returns the number of connections in the middle of a MULTI_GET.
    [[nodiscard]] std::size_t in_multi_get() const { return in_multi_get_; }
    /// Returns the number of connections that wait for the rest of a request.
    [[nodiscard]] std::size_t mid_request() const { return mid_request_; }

private:
    static constexpr unsigned kSlotBits = 24;  ///< of a ConnectionId; above them is a serial number

public:
    static constexpr std::size_t kMax = std::size_t{1} << kSlotBits;

private:
    std::vector<std::unique_ptr<Connection>> slots_;
    std::vector<std::uint32_t> free_slots_;
    std::map<PeerAddress, std::size_t> by_peer_;
    std::uint64_t last_serial_ = 0;
    std::size_t size_ = 0;
    std::size_t held_bytes_ = 0;
    std::size_t in_multi_get_ = 0;
    std::size_t mid_request_ = 0;
};

}  // namespace ddprun::store
