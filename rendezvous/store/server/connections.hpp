#pragma once
// Connections: those of one store server, found by their number. Single owner.

#include <netinet/in.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "common/clock.hpp"
#include "common/unique_fd.hpp"
#include "rendezvous/store/codec.hpp"
#include "rendezvous/store/reply.hpp"
#include "rendezvous/store/waits.hpp"

namespace ddprun::store {

/// As IPv6 writes it, IPv4 mapped into it.
using PeerAddress = std::array<unsigned char, 16>;
[[nodiscard]] PeerAddress address_of(const sockaddr_storage& peer);

/// What is kept for one client. Without a request in progress or a reply under way it owns no memory beside itself.
struct Connection {
    ConnectionId id{};
    UniqueFd socket;
    PeerAddress peer{};
    Decoder decoder;
    Reply output;                ///< what the kernel did not take yet
    bool sending = false;        ///< waits for room to send instead of for input
    bool more = false;           ///< complete requests may wait in the decoder
    bool reading = false;        ///< the next of them is a further part of a MULTI_GET
    bool inside = false;         ///< waits for the rest of a request, since last_byte
    TimePoint last_byte;         ///< when `inside`
    std::size_t held_bytes = 0;  ///< as it was counted last
};

class Connections {
public:
    /// Throws std::bad_alloc, and then nothing has changed.
    Connection& add(UniqueFd socket, const PeerAddress& peer, Decoder decoder);
    /// Null when it is gone.
    [[nodiscard]] Connection* find(ConnectionId id);
    void remove(Connection& connection);

    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] std::size_t count_from(const PeerAddress& peer) const;
    /// `visit` may remove the connection that it is shown.
    template <typename Visit>
    void for_each(Visit visit) {
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            if (slots_[i]) visit(*slots_[i]);
        }
    }

private:
    static constexpr unsigned kSlotBits = 24;  ///< of a ConnectionId; above them is a serial number

public:
    static constexpr std::size_t kMost = std::size_t{1} << kSlotBits;

private:
    std::vector<std::unique_ptr<Connection>> slots_;
    std::vector<std::uint32_t> free_slots_;
    std::map<PeerAddress, std::size_t> by_peer_;
    std::uint64_t last_serial_ = 0;
    std::size_t size_ = 0;
};

}  // namespace ddprun::store
