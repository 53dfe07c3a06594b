#include "rendezvous/daemon/control_port.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/system/port_holder.hpp"
#include "common/text/escape.hpp"
#include "rendezvous/store/codec/codec.hpp"
#include "rendezvous/transport/completion.hpp"
#include "rendezvous/transport/socket.hpp"

namespace ddprun::daemon {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using namespace asio::experimental::awaitable_operators;

namespace {

constexpr std::chrono::milliseconds kCrowdedPause{5};
constexpr unsigned kAcceptsPerTurn = 64;
constexpr std::chrono::milliseconds kAcceptPause{500};  // after EMFILE and the like, until a descriptor was closed

Error cannot_listen(const tcp::endpoint& wanted, const error_code& ec) {
    const Endpoint endpoint{wanted.address().to_string(), wanted.port()};
    const std::string where = to_string(endpoint);
    if (ec == asio::error::address_in_use && endpoint.port != 0) {
        return {Errc::kInUse,
                fmt::format("cannot listen on {}: the port is {}.", where, explain_port_in_use(endpoint))};
    }
    if (ec == boost::system::errc::address_not_available) {
        return {Errc::kSystem,
                fmt::format("cannot listen on {}: this host has no such address. Choose one that `ip address` "
                            "shows here.",
                            where)};
    }
    return {Errc::kSystem,
            fmt::format("cannot listen on {}: {}. Choose another address or port.", where, ec.message())};
}

awaitable<void> pause(asio::any_io_executor executor, Duration duration) {
    asio::steady_timer timer(std::move(executor), duration);
    co_await timer.async_wait(transport::kTuple);
}

}  // namespace

Result<ControlPort> ControlPort::listen(const asio::any_io_executor& executor, const asio::ip::address& address,
                                        std::uint16_t port, std::chrono::milliseconds handshake_time,
                                        transport::Security security) {
    const tcp::endpoint wanted(address, port);
    tcp::acceptor acceptor(executor);
    error_code ec;
    acceptor.open(wanted.protocol(), ec);
    if (!ec) ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);  // for a restart; two listeners still collide
    if (!ec && address.is_v6()) acceptor.set_option(asio::ip::v6_only(false), ec);
    if (!ec) acceptor.bind(wanted, ec);
    if (!ec) acceptor.listen(tcp::acceptor::max_listen_connections, ec);
    if (!ec) acceptor.non_blocking(true, ec);
    if (ec) return cannot_listen(wanted, ec);
    return ControlPort(std::move(acceptor), handshake_time, std::move(security));
}

ControlPort::ControlPort(tcp::acceptor acceptor, std::chrono::milliseconds handshake_time, transport::Security security)
    : acceptor_(std::move(acceptor)),
      endpoint_(acceptor_.local_endpoint()),
      handshake_time_(handshake_time),
      security_(std::move(security)) {}

awaitable<std::optional<Newcomer>> ControlPort::accept() {
    while (acceptor_.is_open()) {
        // A flood of connections must leave the others their turn.
        if (++accepts_ % kAcceptsPerTurn == 0) co_await asio::post(acceptor_.get_executor(), asio::use_awaitable);
        if (!acceptor_.is_open()) break;
        if (!strangers_.make_room(Clock::now())) {
            co_await pause(acceptor_.get_executor(), kCrowdedPause);
            continue;
        }
        // Not async_accept(): between the accept and this coroutine another handler could open the next store.
        if (std::optional<Newcomer> newcomer = accept_waiting()) co_return std::move(newcomer);
        if (may_have_waiting()) continue;
        if (accept_error_ == asio::error::would_block) {
            // Whatever ends the wait, the next accept reports the state of the port.
            (void)co_await acceptor_.async_wait(tcp::acceptor::wait_read, transport::kTuple);
        } else {
            log(fmt::format("cannot accept a connection: {}; trying again", accept_error_.message()));
            co_await pause(acceptor_.get_executor(), kAcceptPause);
        }
    }
    co_return std::nullopt;
}

std::optional<Newcomer> ControlPort::accept_waiting() {
    tcp::socket socket(acceptor_.get_executor());
    tcp::endpoint from;
    do {
        acceptor_.accept(socket, from, accept_error_);
    } while (accept_error_ == asio::error::connection_aborted);
    if (accept_error_) return std::nullopt;
    const asio::ip::address address = transport::unwrapped(from.address());
    std::string peer = to_string(Endpoint{address.to_string(), from.port()});
    const PeerOwner owner = owners_.find(socket.native_handle());
    if (!is_own_or_remote(owner)) {
        log_foreign(peer, owner);
        return std::nullopt;
    }
    const bool own_user = owner.kind == PeerOwner::Kind::kUser;
    Strangers::Place place = strangers_.add(network_of(address), own_user, Clock::now());
    std::string host = address.to_string();
    host = host.substr(0, host.find('%'));
    return Newcomer{std::move(socket), std::move(peer), std::move(host), own_user, std::move(place)};
}

/// Waits for the first byte of a connection, which stays unread.
awaitable<ControlPort::FirstByte> ControlPort::first_byte(Newcomer& newcomer, TimePoint deadline) {
    tcp::socket& socket = newcomer.socket;
    asio::steady_timer timer(socket.get_executor(), deadline);
    newcomer.place.allow_end(socket.native_handle(), [&timer] { timer.cancel(); });
    const auto first =
        co_await (socket.async_wait(tcp::socket::wait_read, transport::kTuple) || timer.async_wait(transport::kTuple));
    newcomer.place.forbid_end();
    char byte = 0;
    const ssize_t size = ::recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (size != 1 && first.index() == 1) co_return FirstByte::kNone;
    co_return size == 1 && store::may_begin_with(byte) ? FirstByte::kOfStoreClient : FirstByte::kOther;
}

awaitable<std::optional<Introduction>> ControlPort::introduce(Newcomer newcomer, transport::JobLines job_lines) {
    const TimePoint deadline = Clock::now() + handshake_time_;
    const FirstByte first = co_await first_byte(newcomer, deadline);
    if (first != FirstByte::kOther) {
        error_code released;
        Introduction client =
            StoreClient{UniqueFd(newcomer.socket.release(released)), newcomer.own_user, first == FirstByte::kNone};
        co_return std::move(client);
    }
    // The socket belongs to the handshake from here on, which ends when this second descriptor shuts it down.
    const UniqueFd handle(::fcntl(newcomer.socket.native_handle(), F_DUPFD_CLOEXEC, 0));
    if (handle) newcomer.place.allow_end(handle.get(), [socket = handle.get()] { ::shutdown(socket, SHUT_RDWR); });
    // With TLS nothing of the message is read before its sender has shown the key.
    const bool is_known = newcomer.own_user || (security_.credentials && !security_.insecure);
    const std::size_t max_bytes = is_known ? kMaxJoinBytes : kMaxStrangersJoinBytes;
    Result<Greeting> greeting =
        co_await greet(std::move(newcomer.socket), deadline, max_bytes, std::move(job_lines), security_);
    newcomer.place.forbid_end();
    if (!greeting) {
        // A warning: a node with another key or without TLS cannot join, and this may be the only console that is read.
        const bool is_untrusted = greeting.error().code == Errc::kUntrusted;
        log_closed(newcomer.peer, greeting.error().message, is_untrusted ? spdlog::level::warn : spdlog::level::info);
        co_return std::nullopt;
    }
    Introduction made = std::move(*greeting);
    co_return std::move(made);
}

void ControlPort::log_closed(const std::string& peer, const std::string& why, spdlog::level::level_enum level) {
    log(fmt::format("closed the connection of {}: {}", peer, why), level);
}

void ControlPort::close() {
    error_code ignored;  // the port counts as closed all the same
    acceptor_.close(ignored);
}

/// Logs that a connection from this host was closed: as a warning if it is another user's, because a process of this
/// job may have changed its user.
void ControlPort::log_foreign(const std::string& peer, const PeerOwner& owner) {
    log(fmt::format("closed a new connection from {}: it is that of {}, and on this host only those of user {} are "
                    "served",
                    peer, to_string(owner), ::geteuid()),
        owner.kind == PeerOwner::Kind::kUser ? spdlog::level::warn : spdlog::level::info);
}

void ControlPort::log(const std::string& line, spdlog::level::level_enum level) {
    if (!lines_.admit(Clock::now())) return;
    spdlog::log(level, "{}{}", log_line(line), lines_.last() ? " (more of these will not be shown for a while)" : "");
}

}  // namespace ddprun::daemon
