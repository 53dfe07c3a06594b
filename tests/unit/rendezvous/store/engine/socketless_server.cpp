#include "tests/unit/rendezvous/store/engine/socketless_server.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "rendezvous/store/codec/wire.hpp"

namespace ddprun::store::test {

SocketlessServer::Peer& SocketlessServer::peer(std::uint64_t connection) {
    const auto found = peers_.find(connection);
    if (found != peers_.end()) return found->second;
    return peers_.emplace(connection, Peer{Decoder(options_, &block_memory_), {}, false, false}).first->second;
}

void SocketlessServer::receive(std::uint64_t connection, std::string_view bytes, std::size_t max_requests) {
    Peer& from = peer(connection);
    if (from.closed) return;
    if (from.more) broken_ = "received while requests were left";
    const std::unique_ptr<char[]> copy(new char[bytes.size()]);
    std::memcpy(copy.get(), bytes.data(), bytes.size());
    from.decoder.feed({copy.get(), bytes.size()});
    serve(connection, max_requests);
}

std::size_t SocketlessServer::receive_in_place(std::uint64_t connection, std::string_view bytes,
                                               std::size_t max_requests) {
    Peer& from = peer(connection);
    if (from.closed || from.more) return 0;
    const std::span<char> room = from.decoder.room();
    if (room.empty() || bytes.empty()) return 0;
    const std::size_t size = std::min(room.size(), bytes.size());
    std::memcpy(room.data(), bytes.data(), size);
    from.decoder.received(size);
    serve(connection, max_requests);
    return size;
}

void SocketlessServer::serve(std::uint64_t connection, std::size_t max_requests) {
    Peer& from = peer(connection);
    from.more = false;
    for (; max_requests > 0; --max_requests) {
        if (from.closed || !serve_one(connection, from)) return;
    }
    from.decoder.keep();
    from.more = true;
}

bool SocketlessServer::serve_one(std::uint64_t connection, Peer& from) {
    bool more = true;
    for (bool first = true; more; first = false) {
        if (!first) from.decoder.keep();  // between the parts of a request other connections are served
        const auto request = from.decoder.next();
        if (request && !*request) return false;
        const auto applied =
            request ? engine_.apply(ConnectionId{connection}, **request, from.output) : request.error();
        if (!applied) {
            close(connection);
            return false;
        }
        more = (*request)->has_more_keys;
    }
    for (const ConnectionId id : engine_.released()) {
        const auto other = peers_.find(static_cast<std::uint64_t>(id));
        if (other == peers_.end() || other->second.closed) {
            broken_ = "a connection that is gone is released";
        } else if (id == ConnectionId{connection}) {
            broken_ = "a connection is released by its own request";
        } else {
            other->second.output.byte(wire::kStopWaiting);
        }
    }
    return true;
}

void SocketlessServer::close(std::uint64_t connection) {
    engine_.forget(ConnectionId{connection});
    Peer& gone = peer(connection);
    gone.closed = true;
    gone.more = false;
    gone.decoder = Decoder(options_, &block_memory_);
}

std::string SocketlessServer::send(std::uint64_t connection, std::size_t max_bytes) {
    Reply& output = peer(connection).output;
    std::string sent;
    while (!output.empty() && sent.size() < max_bytes) {
        std::array<iovec, 4> pieces{};
        const std::size_t budget = max_bytes - sent.size();
        std::size_t taken = 0;
        for (const iovec& piece : output.next(pieces, budget)) {
            sent.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
            taken += piece.iov_len;
        }
        if (taken == 0 || taken > output.size()) {
            broken_ = "a reply offers nothing, or more than it has";
            return sent;
        }
        output.sent(taken);
    }
    if (output.empty()) output.clear();
    return sent;
}

std::size_t SocketlessServer::buffer_memory() const {
    std::size_t sum = 0;
    for (const auto& [id, peer] : peers_) sum += peer.decoder.held_bytes() + peer.output.held_bytes();
    return sum;
}

}  // namespace ddprun::store::test
