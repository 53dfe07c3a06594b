// EpollServer: who comes in and who is sent away.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "rendezvous/store/epoll_server.hpp"

namespace ddprun::store {
namespace {

using namespace std::chrono_literals;

/// After an accept that failed, typically for want of descriptors.
constexpr auto kAcceptPause = 100ms;
/// New connections in one turn of the listener.
constexpr int kAcceptsPerTurn = 64;

std::string peer_of(const Connection& connection) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    ::getpeername(connection.socket.get(), reinterpret_cast<sockaddr*>(&peer), &size);  // it may be gone already
    return to_text(peer);
}

}  // namespace

template <typename Line>
void EpollServer::warn(Line line) {
    const auto left_out = log_limit_.admit(now_());
    if (!left_out) return;
    try {
        if (*left_out > 0) spdlog::warn("store {}: {} lines like the next one were left out", name_, *left_out);
        spdlog::warn("{}", line());
    } catch (const std::bad_alloc&) {  // what the line is about matters more than the line
    }
}

void EpollServer::accept() {
    for (int i = 0; i < kAcceptsPerTurn && accepting_ == Accepting::kYes; ++i) {
        if (connections_.size() >= options_.limits.connections) {
            warn([this] {
                return fmt::format("store {}: accepts no further connection while there are {}, which is its limit",
                                   name_, connections_.size());
            });
            return listen_for(Accepting::kAtLimit);
        }
        auto accepted = listener_->accept();
        if (accepted.error != 0) return cannot_accept(accepted.error);
        if (!accepted.socket) return;
        if (std::exchange(accept_failed_, false)) {
            warn([this] { return fmt::format("store {}: accepts connections again", name_); });
        }
        try {
            admit(std::move(accepted));
        } catch (const std::bad_alloc&) {
            return cannot_accept(ENOMEM);
        }
    }
}

void EpollServer::admit(Listener::Accepted accepted) {
    const PeerAddress address = address_of(accepted.peer);
    if (connections_.count_from(address) >= options_.limits.connections_per_address) {
        ++statistics_.refused;
        return warn([&] {
            return fmt::format("store {}: closed a new connection from {}, which has {} already, its limit", name_,
                               to_text(accepted.peer), connections_.count_from(address));
        });
    }
    Connection& connection = connections_.add(std::move(accepted.socket), address, Decoder(options_, &block_memory_));
    epoll_event event{EPOLLIN, {.u64 = static_cast<std::uint64_t>(connection.id)}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.socket.get(), &event) != 0) {
        const int error = errno;
        end(connection);
        return cannot_accept(error);
    }
    ++statistics_.accepted;
}

void EpollServer::cannot_accept(int error) {
    ++statistics_.accept_failures;
    // Once in a row of failures. The connection stays in the backlog, so trying again at once would spin.
    if (!std::exchange(accept_failed_, true)) {
        warn([&] {
            return fmt::format("store {}: cannot accept a connection: {}; {} are open. {}. Trying again every {} ms",
                               name_, std::generic_category().message(error), connections_.size(), advice_after(error),
                               kAcceptPause.count());
        });
    }
    accept_again_at_ = now_() + kAcceptPause;
    listen_for(Accepting::kFailing);
}

void EpollServer::listen_for(Accepting state) {
    epoll_event event{state == Accepting::kYes ? EPOLLIN : EPOLL_EVENTS{}, {.u64 = 0}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_->fd(), &event);  // cannot fail: it is in the set
    accepting_ = state;
}

void EpollServer::refuse(Connection& connection, std::string_view why) {
    ++statistics_.refused;
    warn([&] { return fmt::format("store {}: closed the connection from {}: {}", name_, peer_of(connection), why); });
    end(connection);
}

void EpollServer::end_stalled(TimePoint now) {
    const std::chrono::seconds limit(options_.limits.stalled_request_seconds);
    connections_.for_each([&](Connection& connection) {
        if (!connection.inside || now - connection.last_byte < limit) return;
        std::array<char, 80> why;  // no allocation: nobody is there to catch that there is no memory for it
        const auto* const end = fmt::format_to_n(why.data(), why.size(),
                                                 "it sent nothing for {} s in the middle of a request", limit.count())
                                    .out;
        refuse(connection, {why.data(), end});
    });
    look_for_stalled_at_ = now + looking_period();
}

Duration EpollServer::looking_period() const {
    return std::chrono::milliseconds(options_.limits.stalled_request_seconds * 1000 / 8);
}

Statistics EpollServer::statistics() const {
    Statistics now = statistics_;
    now.connections = connections_.size();
    now.keys = engine_.key_count();
    now.store_bytes = engine_.bytes();
    now.waiters = engine_.waiter_count();
    now.buffer_bytes = buffer_bytes();
    return now;
}

}  // namespace ddprun::store
