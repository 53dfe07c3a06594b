#include "rendezvous/store/epoll_server.hpp"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "rendezvous/store/wire.hpp"

namespace ddprun::store {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kScratchBytes = std::size_t{64} << 10;
/// What one connection receives into or sends from large values before the others have their turn; and what it does
/// after so many turns in which it was alone, when larger pieces cost nobody anything.
constexpr std::size_t kTurnBytes = std::size_t{128} << 10;
constexpr std::size_t kAloneTurnBytes = std::size_t{1} << 20;
constexpr std::size_t kTurnsAlone = 8;
/// So long the pages of a large value that went are kept for the next one: an idle store is small.
constexpr auto kSpareStays = 1s;
/// Of unsent output and half received requests, what a connection may hold when all buffers together are at their
/// limit.
constexpr std::size_t kSmallBytes = std::size_t{4} << 10;

/// A seed that nobody knows in place of none; limits that the types behind them can hold.
Options completed(Options options) {
    while (options.hash_seed.first == 0 && options.hash_seed.second == 0) {
        HashSeed seed;
        if (::getrandom(&seed, sizeof seed, 0) == sizeof seed) options.hash_seed = seed;
    }
    Limits& limits = options.limits;
    limits.key_bytes = std::min(limits.key_bytes, std::size_t{1} << 30);
    limits.connections = std::min(limits.connections, Connections::kMost);
    limits.stalled_request_seconds = std::min(limits.stalled_request_seconds, std::size_t{1} << 30);
    return options;
}

}  // namespace

Result<std::unique_ptr<EpollServer>> EpollServer::listen(const std::string& address, std::uint16_t port,
                                                         const Options& options, Now now) {
    auto listener = Listener::open(address, port);
    if (!listener) return listener.error();
    UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{EPOLLIN, {.u64 = 0}};
    if (!epoll || ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, listener->fd(), &event) != 0) {
        return system_error("cannot watch the connections of a store", errno);
    }
    return std::make_unique<EpollServer>(std::move(*listener), std::move(epoll), options, std::move(now));
}

EpollServer::EpollServer(Listener listener, UniqueFd epoll, const Options& options, Now now)
    : options_(completed(options)),
      now_(std::move(now)),
      listener_(std::move(listener)),
      port_(listener_->port()),
      name_(listener_->name()),
      epoll_(std::move(epoll)),
      scratch_(kScratchBytes),
      engine_(options_.limits, options_.hash_seed, &block_memory_) {}

EpollServer::~EpollServer() { close(); }

void EpollServer::close() {
    listener_.reset();
    accepting_ = Accepting::kClosed;
    connections_.for_each([&](Connection& connection) { end(connection); });
    ready_.clear();
}

void EpollServer::serve_until_signal(const std::function<bool()>& go_on) {
    sigset_t before;
    sigset_t blocked;
    ::sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) ::sigdelset(&blocked, fault);
    ::pthread_sigmask(SIG_SETMASK, &blocked, &before);
    // First for those that came before they were blocked.
    for (interrupted_ = true; !interrupted_ || go_on();) {
        if (accepting_ == Accepting::kClosed) break;
        serve(-1ns, &before);
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::size_t EpollServer::serve(std::chrono::nanoseconds patience, const sigset_t* signals) {
    const std::size_t count = wait(patience, signals);
    // Only those that are ready now: who has still more after this turn queues up behind the others.
    const std::size_t ready = ready_.size();
    turns_alone_ = count + ready > 1 ? 0 : turns_alone_ + 1;
    for (std::size_t i = 0; i < count; ++i) {
        const epoll_event& event = events_[i];
        if (event.data.u64 == 0) {
            accept();
        } else if (Connection* const connection = connections_.find(ConnectionId{event.data.u64})) {
            turn(*connection, event.events);
        }
    }
    for (std::size_t i = 0; i < ready; ++i) {
        if (Connection* const connection = connections_.find(ready_[i])) turn(*connection, 0);
    }
    ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(ready));

    watch_spare();
    if (const auto due = deadline()) {
        const TimePoint now = now_();
        if (now < *due) return count + ready;
        if (accepting_ == Accepting::kFailing && now >= accept_again_at_) listen_for(Accepting::kYes);
        if (inside_ > 0 && now >= look_for_stalled_at_) end_stalled(now);
        if (now >= drop_spare_at_) block_memory_.spare.drop();
    }
    return count + ready;
}

std::size_t EpollServer::wait(std::chrono::nanoseconds patience, const sigset_t* signals) {
    if (!ready_.empty()) patience = 0ns;
    if (const auto due = deadline(); due && patience != 0ns) {
        const auto left = std::max<std::chrono::nanoseconds>(*due - now_(), 0ns);
        patience = patience < 0ns ? left : std::min(patience, left);
    }
    const auto whole = std::min<std::chrono::milliseconds>(std::chrono::ceil<std::chrono::milliseconds>(patience), 60s);
    const int count = ::epoll_pwait(epoll_.get(), events_.data(), static_cast<int>(events_.size()),
                                    patience < 0ns ? -1 : static_cast<int>(whole.count()), signals);
    interrupted_ = count < 0;  // by EINTR, the only way in which it can fail
    return count > 0 ? static_cast<std::size_t>(count) : 0;
}

std::optional<TimePoint> EpollServer::deadline() const {
    std::optional<TimePoint> due;
    if (accepting_ == Accepting::kFailing) due = accept_again_at_;
    if (inside_ > 0) due = due ? std::min(*due, look_for_stalled_at_) : look_for_stalled_at_;
    if (!block_memory_.spare.empty()) due = due ? std::min(*due, drop_spare_at_) : drop_spare_at_;
    return due;
}

void EpollServer::watch_spare() {
    if (block_memory_.spare.times_kept() == spare_seen_) return;
    spare_seen_ = block_memory_.spare.times_kept();
    drop_spare_at_ = now_() + kSpareStays;
}

void EpollServer::turn(Connection& connection, std::uint32_t events) {
    const ConnectionId id = connection.id;
    try {
        if (connection.sending) {
            if (!send(connection, connection.output)) return end(connection);
            if (!connection.output.empty()) return;
            connection.output = {};
            wait_for(connection, false);
            serve_requests(connection);
        } else if (connection.more) {
            // What it has sent since then stays in the kernel until these are served.
            if (events == 0) serve_requests(connection);
        } else if (events != 0) {
            receive(connection);
        }
    } catch (const std::bad_alloc&) {
        reply_ = {};
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
    std::string refusal;
    while (true) {
        if (reply.size() >= options_.limits.output_bytes) {
            connection.decoder.keep();
            connection.more = true;
            break;
        }
        const auto request = connection.decoder.next();
        if (!request) refusal = request.error().message;
        if (!request || !*request) break;
        ++statistics_.requests[static_cast<std::size_t>((*request)->kind)];
        const auto released = engine_.apply(connection.id, **request, reply);
        if (!released) {
            refusal = released.error().message;
            break;
        }
        for (const ConnectionId other : *released) stop_waiting(other);
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

bool EpollServer::send(Connection& connection, Reply& reply) {
    // Small replies, which output_bytes limits, go out together.
    std::size_t budget = reply.large() ? turn_bytes() : reply.size();
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

void EpollServer::stop_waiting(ConnectionId id) {
    Connection* const connection = connections_.find(id);
    if (!connection) return;
    connection->output.byte(wire::kStopWaiting);
    if (connection->sending) return;
    if (!send(*connection, connection->output)) return end(*connection);
    wait_for(*connection, !connection->output.empty());
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
    connections_.remove(connection);
    if (accepting_ == Accepting::kAtLimit) listen_for(Accepting::kYes);
}

}  // namespace ddprun::store
