#include "rendezvous/store/server/request_service.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <new>
#include <string>
#include <utility>

#include "rendezvous/store/codec/wire.hpp"

namespace ddprun::store {
namespace {

constexpr std::size_t kScratchBytes = std::size_t{64} << 10;
/// The bytes of large values that one connection receives or sends before the others are served. After kLoneSlices in
/// which no other one was ready it is kLoneSliceBytes: larger pieces then delay no other connection.
constexpr std::size_t kSliceBytes = std::size_t{128} << 10;
constexpr std::size_t kLoneSliceBytes = std::size_t{1} << 20;
constexpr std::size_t kLoneSlices = 8;
/// The bytes of unsent output and half received requests that a connection may hold when all buffers together are at
/// their limit.
constexpr std::size_t kSmallBytes = std::size_t{4} << 10;

std::string peer_of(const Connection& connection) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    ::getpeername(connection.socket.get(), reinterpret_cast<sockaddr*>(&peer), &size);  // it may be closed already
    return to_text(peer);
}

}  // namespace

RequestService::RequestService(ServerContext& context, Admission& admission)
    : context_(context),
      admission_(admission),
      scratch_(kScratchBytes),
      engine_(context.options.limits, context.options.hash_seed, &context.block_memory) {}

std::size_t RequestService::begin_round(std::size_t events) {
    lone_slices_ = events + ready_.size() > 1 ? 0 : lone_slices_ + 1;
    return ready_.size();
}

void RequestService::serve_ready(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        if (Connection* const connection = context_.connections.find(ready_[i])) serve(*connection, 0);
    }
    ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(count));
}

void RequestService::serve(Connection& connection, std::uint32_t events) {
    const ConnectionId id = connection.id;
    try {
        if (connection.sending) {
            if (!send(connection, connection.output)) return end(connection);
            if (!connection.output.empty()) return;
            connection.output.release();
            wait_for(connection, false);
            serve_requests(connection);
        } else if (connection.pending) {
            // The bytes that it has sent since then stay in the kernel until these requests are served.
            if (events == 0) serve_requests(connection);
        } else if (events != 0) {
            receive(connection);
        }
    } catch (const std::bad_alloc&) {
        reply_.release();
        notify_released();  // the effects of the request so far remain
        if (Connection* const victim = context_.connections.find(id)) refuse(*victim, "out of memory");
    }
}

void RequestService::receive(Connection& connection) {
    std::span<char> into = connection.decoder.room();
    const bool in_place = !into.empty();
    into = in_place ? into.first(std::min(into.size(), slice_bytes())) : std::span<char>(scratch_);
    const ssize_t received = ::recv(connection.socket.get(), into.data(), into.size(), 0);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (received <= 0) return end(connection);  // also in the middle of a request, which then has no effect (R14)
    const auto bytes = static_cast<std::size_t>(received);
    context_.statistics.received_bytes += bytes;
    if (in_place) {
        connection.decoder.received(bytes);
    } else {
        connection.decoder.feed({into.data(), bytes});
    }
    serve_requests(connection);
}

void RequestService::serve_requests(Connection& connection) {
    // Replies go out in one piece (R2), and mostly at once: then the connection itself needs no memory for them.
    Reply& reply = reply_;
    assert(connection.output.empty() && reply.empty());
    connection.pending = false;
    context_.connections.set_in_multi_get(connection, false);
    std::string refusal;
    while (true) {
        if (connection.in_multi_get || reply.size() >= context_.options.limits.output_bytes) {
            connection.decoder.keep();
            connection.pending = true;
            break;
        }
        const auto request = connection.decoder.next();
        if (!request) refusal = request.error().message;
        if (!request || !*request) break;
        // No client sees half of a MULTI_SET (R9): a MULTI_GET that has begun is answered to its end before it.
        if ((*request)->kind == RequestKind::kMultiSet) finish_multi_gets();
        context_.connections.set_in_multi_get(connection, (*request)->has_more_keys);
        if (!connection.in_multi_get) ++context_.statistics.requests[static_cast<std::size_t>((*request)->kind)];
        const auto applied = engine_.apply(connection.id, **request, reply);
        notify_released();
        if (!applied) {
            refusal = applied.error().message;
            break;
        }
    }
    const bool alive = send(connection, reply);
    if (!reply.empty()) std::swap(reply, connection.output);
    // The replies to earlier requests are sent; bytes that the kernel does not take now are lost.
    if (!refusal.empty()) return refuse(connection, refusal);
    if (!alive) return end(connection);
    wait_for(connection, !connection.output.empty());
    if (connection.pending && !connection.sending) ready_.push_back(connection.id);
    update_totals(connection);
}

void RequestService::finish_multi_gets() {
    if (context_.connections.in_multi_get() == 0) return;
    context_.connections.for_each([&](Connection& connection) {
        if (connection.in_multi_get) finish_multi_get(connection);
    });
}

void RequestService::finish_multi_get(Connection& connection) {
    try {
        while (connection.in_multi_get) {
            const auto part = connection.decoder.next();  // the request is complete: there is one
            const auto applied = engine_.apply(connection.id, **part, connection.output);
            if (!applied) return refuse(connection, applied.error().message);
            context_.connections.set_in_multi_get(connection, (*part)->has_more_keys);
            // Here a part does not wait until the one before it is sent.
            if (const std::size_t max = context_.options.limits.reply_bytes; connection.output.size() > max) {
                return refuse(connection, fmt::format("MULTI_GET of more than {} bytes, which a MULTI_SET cannot wait "
                                                      "for",
                                                      max));
            }
        }
    } catch (const std::bad_alloc&) {
        return refuse(connection, "out of memory");
    }
    ++context_.statistics.requests[static_cast<std::size_t>(RequestKind::kMultiGet)];
    if (!connection.sending && !send(connection, connection.output)) return end(connection);
    if (connection.output.empty()) connection.output.release();
    wait_for(connection, !connection.output.empty());
    update_totals(connection);
}

bool RequestService::send(Connection& connection, Reply& reply) {
    // Small replies, which output_bytes limits, go out together.
    std::size_t budget = reply.large() || reply.size() > kLoneSliceBytes ? slice_bytes() : reply.size();
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
        context_.statistics.sent_bytes += static_cast<std::uint64_t>(sent);
        if (static_cast<std::size_t>(sent) < asked) return true;
        budget -= asked;
    }
    if (reply.empty()) reply.clear();
    return true;
}

void RequestService::notify_released() {
    for (const ConnectionId id : engine_.released()) {
        if (Connection* const connection = context_.connections.find(id)) stop_waiting(*connection);
    }
    engine_.forget_released();
}

void RequestService::stop_waiting(Connection& connection) {
    try {
        connection.output.byte(wire::kStopWaiting);
    } catch (const std::bad_alloc&) {
        return refuse(connection, "out of memory");
    }
    if (connection.sending) return;
    if (!send(connection, connection.output)) return end(connection);
    wait_for(connection, !connection.output.empty());
}

void RequestService::wait_for(Connection& connection, bool room_to_send) {
    if (connection.sending == room_to_send) return;
    // A peer that does not receive its replies is not read from either: this bounds the memory held for it.
    epoll_event event{room_to_send ? EPOLLOUT : EPOLLIN, {.u64 = static_cast<std::uint64_t>(connection.id)}};
    ::epoll_ctl(context_.epoll.get(), EPOLL_CTL_MOD, connection.socket.get(), &event);  // cannot fail: it is in the set
    connection.sending = room_to_send;
}

void RequestService::update_totals(Connection& connection) {
    const std::size_t held = connection.decoder.held_bytes() + connection.output.held_bytes();
    context_.connections.set_held_bytes(connection, held);
    const bool mid_request = connection.decoder.inside_request() && !connection.sending && !connection.pending;
    if (mid_request) {
        connection.last_byte = context_.now();
        if (context_.connections.mid_request() == 0) check_stalled_at_ = connection.last_byte + stall_check_period();
    }
    context_.connections.set_mid_request(connection, mid_request);
    const bool large = held > kSmallBytes || connection.decoder.receiving() || connection.output.size() > kSmallBytes;
    if (large && buffer_bytes() > context_.options.limits.buffer_bytes) {
        refuse(connection, fmt::format("half received requests and unsent replies of all {} connections hold more than "
                                       "{} bytes",
                                       context_.connections.size(), context_.options.limits.buffer_bytes));
    }
}

std::size_t RequestService::slice_bytes() const { return lone_slices_ < kLoneSlices ? kSliceBytes : kLoneSliceBytes; }

std::size_t RequestService::buffer_bytes() const {
    return context_.connections.held_bytes() + context_.block_memory.bytes - engine_.block_bytes();
}

std::optional<TimePoint> RequestService::deadline() const {
    return context_.connections.mid_request() > 0 ? std::optional(check_stalled_at_) : std::nullopt;
}

Duration RequestService::stall_check_period() const {
    return std::chrono::milliseconds(context_.options.limits.stalled_request_seconds * 1000 / 8);
}

void RequestService::end_stalled(TimePoint now) {
    if (context_.connections.mid_request() == 0 || now < check_stalled_at_) return;
    const std::chrono::seconds limit(context_.options.limits.stalled_request_seconds);
    context_.connections.for_each([&](Connection& connection) {
        if (!connection.mid_request || now - connection.last_byte < limit) return;
        std::array<char, 80> why;  // no allocation: no caller catches std::bad_alloc
        const auto* const end = fmt::format_to_n(why.data(), why.size(),
                                                 "it sent nothing for {} s in the middle of a request", limit.count())
                                    .out;
        refuse(connection, {why.data(), end});
    });
    check_stalled_at_ = now + stall_check_period();
}

void RequestService::refuse(Connection& connection, std::string_view why) {
    ++context_.statistics.refused;
    context_.warn([&] {
        return fmt::format("store {}: closed the connection from {}: {}", context_.name, peer_of(connection), why);
    });
    end(connection);
}

void RequestService::end(Connection& connection) {
    engine_.forget(connection.id);
    context_.connections.remove(connection);
    admission_.connection_ended();
}

void RequestService::end_all() {
    context_.connections.for_each([&](Connection& connection) { end(connection); });
    ready_.clear();
}

}  // namespace ddprun::store
