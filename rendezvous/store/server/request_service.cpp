// EpollServer: what one connection does when it is its turn.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <new>
#include <string>
#include <utility>

#include "rendezvous/store/epoll_server.hpp"
#include "rendezvous/store/wire.hpp"

namespace ddprun::store {
namespace {

/// What one connection receives into or sends from large values before the others have their turn; and what it does
/// after so many turns in which it was alone, when larger pieces cost nobody anything.
constexpr std::size_t kTurnBytes = std::size_t{128} << 10;
constexpr std::size_t kAloneTurnBytes = std::size_t{1} << 20;
constexpr std::size_t kTurnsAlone = 8;
/// Of unsent output and half received requests, what a connection may hold when all buffers together are at their
/// limit.
constexpr std::size_t kSmallBytes = std::size_t{4} << 10;

}  // namespace

void EpollServer::turn(Connection& connection, std::uint32_t events) {
    const ConnectionId id = connection.id;
    try {
        if (connection.sending) {
            if (!send(connection, connection.output)) return end(connection);
            if (!connection.output.empty()) return;
            connection.output.release();
            wait_for(connection, false);
            serve_requests(connection);
        } else if (connection.more) {
            // What it has sent since then stays in the kernel until these are served.
            if (events == 0) serve_requests(connection);
        } else if (events != 0) {
            receive(connection);
        }
    } catch (const std::bad_alloc&) {
        reply_.release();
        tell_released();  // what the request did before stands
        if (Connection* const victim = connections_.find(id)) refuse(*victim, "out of memory");
    }
}

void EpollServer::receive(Connection& connection) {
    std::span<char> into = connection.decoder.room();
    const bool in_place = !into.empty();
    into = in_place ? into.first(std::min(into.size(), turn_bytes())) : std::span<char>(scratch_);
    const ssize_t received = ::recv(connection.socket.get(), into.data(), into.size(), 0);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (received <= 0) return end(connection);  // also in the middle of a request, which then has no effect (R14)
    const auto bytes = static_cast<std::size_t>(received);
    statistics_.received_bytes += bytes;
    if (in_place) {
        connection.decoder.received(bytes);
    } else {
        connection.decoder.feed({into.data(), bytes});
    }
    serve_requests(connection);
}

void EpollServer::serve_requests(Connection& connection) {
    // Replies go out in one piece (R2), and mostly at once: then the connection itself needs no memory for them.
    Reply& reply = reply_;
    assert(connection.output.empty() && reply.empty());
    connection.more = false;
    set_reading(connection, false);
    std::string refusal;
    while (true) {
        if (connection.reading || reply.size() >= options_.limits.output_bytes) {
            connection.decoder.keep();
            connection.more = true;
            break;
        }
        const auto request = connection.decoder.next();
        if (!request) refusal = request.error().message;
        if (!request || !*request) break;
        // Nobody sees a MULTI_SET half done (R9): what was read in part before it is read to its end before it.
        if ((*request)->kind == RequestKind::kMultiSet) finish_reading();
        set_reading(connection, (*request)->has_more_keys);
        if (!connection.reading) ++statistics_.requests[static_cast<std::size_t>((*request)->kind)];
        const auto applied = engine_.apply(connection.id, **request, reply);
        tell_released();
        if (!applied) {
            refusal = applied.error().message;
            break;
        }
    }
    const bool alive = send(connection, reply);
    if (!reply.empty()) std::swap(reply, connection.output);
    // The replies to what came before are sent; whatever the kernel does not take now is lost.
    if (!refusal.empty()) return refuse(connection, refusal);
    if (!alive) return end(connection);
    wait_for(connection, !connection.output.empty());
    if (connection.more && !connection.sending) ready_.push_back(connection.id);
    keep_account(connection);
}

void EpollServer::set_reading(Connection& connection, bool reading) {
    if (reading == std::exchange(connection.reading, reading)) return;
    reading_ += reading ? 1 : -1;
}

void EpollServer::finish_reading() {
    if (reading_ == 0) return;
    connections_.for_each([&](Connection& connection) {
        if (connection.reading) finish_reading(connection);
    });
}

void EpollServer::finish_reading(Connection& connection) {
    try {
        while (connection.reading) {
            const auto part = connection.decoder.next();  // the request is complete: there is one
            const auto applied = engine_.apply(connection.id, **part, connection.output);
            if (!applied) return refuse(connection, applied.error().message);
            set_reading(connection, (*part)->has_more_keys);
            // No part waits here until the one before it is sent.
            if (const std::size_t most = options_.limits.reply_bytes; connection.output.size() > most) {
                return refuse(connection, fmt::format("MULTI_GET of more than {} bytes, which a MULTI_SET cannot wait "
                                                      "for",
                                                      most));
            }
        }
    } catch (const std::bad_alloc&) {
        return refuse(connection, "out of memory");
    }
    ++statistics_.requests[static_cast<std::size_t>(RequestKind::kMultiGet)];
    if (!connection.sending && !send(connection, connection.output)) return end(connection);
    if (connection.output.empty()) connection.output.release();
    wait_for(connection, !connection.output.empty());
    keep_account(connection);
}

bool EpollServer::send(Connection& connection, Reply& reply) {
    // Small replies, which output_bytes limits, go out together.
    std::size_t budget = reply.large() || reply.size() > kAloneTurnBytes ? turn_bytes() : reply.size();
    while (!reply.empty() && budget > 0) {
        std::array<iovec, 64> pieces;
        const auto next = reply.next(pieces, budget);
        ssize_t sent = 0;
        std::size_t asked = 0;
        if (next.size() == 1) {
            asked = next[0].iov_len;
            sent = ::send(connection.socket.get(), next[0].iov_base, asked, MSG_NOSIGNAL);
        } else {
            for (const iovec& piece : next) asked += piece.iov_len;
            msghdr message{};
            message.msg_iov = next.data();
            message.msg_iovlen = next.size();
            sent = ::sendmsg(connection.socket.get(), &message, MSG_NOSIGNAL);
        }
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return errno == EAGAIN;
        reply.sent(static_cast<std::size_t>(sent));
        statistics_.sent_bytes += static_cast<std::uint64_t>(sent);
        if (static_cast<std::size_t>(sent) < asked) return true;
        budget -= asked;
    }
    if (reply.empty()) reply.clear();
    return true;
}

void EpollServer::tell_released() {
    for (const ConnectionId id : engine_.released()) {
        if (Connection* const connection = connections_.find(id)) stop_waiting(*connection);
    }
    engine_.forget_released();
}

void EpollServer::stop_waiting(Connection& connection) {
    try {
        connection.output.byte(wire::kStopWaiting);
    } catch (const std::bad_alloc&) {
        return refuse(connection, "out of memory");
    }
    if (connection.sending) return;
    if (!send(connection, connection.output)) return end(connection);
    wait_for(connection, !connection.output.empty());
}

void EpollServer::wait_for(Connection& connection, bool room_to_send) {
    if (connection.sending == room_to_send) return;
    // A peer that does not take its replies is not read from either: this bounds what is held for it.
    epoll_event event{room_to_send ? EPOLLOUT : EPOLLIN, {.u64 = static_cast<std::uint64_t>(connection.id)}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), &event);  // cannot fail: it is in the set
    connection.sending = room_to_send;
}

void EpollServer::keep_account(Connection& connection) {
    const std::size_t held = connection.decoder.held_bytes() + connection.output.held_bytes();
    held_bytes_ += held - std::exchange(connection.held_bytes, held);
    const bool inside = connection.decoder.inside_request() && !connection.sending && !connection.more;
    if (inside) {
        connection.last_byte = now_();
        if (inside_ == 0) look_for_stalled_at_ = connection.last_byte + looking_period();
    }
    if (inside != std::exchange(connection.inside, inside)) inside_ += inside ? 1 : -1;
    const bool large = held > kSmallBytes || connection.decoder.receiving() || connection.output.size() > kSmallBytes;
    if (large && buffer_bytes() > options_.limits.buffer_bytes) {
        refuse(connection, fmt::format("half received requests and unsent replies of all {} connections hold more than "
                                       "{} bytes",
                                       connections_.size(), options_.limits.buffer_bytes));
    }
}

std::size_t EpollServer::turn_bytes() const { return turns_alone_ < kTurnsAlone ? kTurnBytes : kAloneTurnBytes; }

std::size_t EpollServer::buffer_bytes() const { return held_bytes_ + block_memory_.bytes - engine_.block_bytes(); }

void EpollServer::end(Connection& connection) {
    engine_.forget(connection.id);
    held_bytes_ -= connection.held_bytes;
    if (connection.inside) --inside_;
    if (connection.reading) --reading_;
    connections_.remove(connection);
    if (accepting_ == Accepting::kAtLimit) listen_for(Accepting::kYes);
}

}  // namespace ddprun::store
