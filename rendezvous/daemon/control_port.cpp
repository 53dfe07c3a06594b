#include "rendezvous/daemon/control_port.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/text/escape.hpp"
#include "rendezvous/transport/completion.hpp"
#include "rendezvous/transport/socket.hpp"

namespace ddprun::daemon {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::chrono::milliseconds kCrowdedPause{10};
constexpr std::chrono::milliseconds kAcceptPause{500};  // after EMFILE and the like, until a descriptor was closed

Error cannot_listen(const tcp::endpoint& wanted, const error_code& ec) {
    const std::string where = to_string(Endpoint{wanted.address().to_string(), wanted.port()});
    if (ec == asio::error::address_in_use) {
        return {Errc::kInUse,
                fmt::format("cannot listen on {}: the port is in use, perhaps by the ddprund of another job. End "
                            "that one, or choose another port (0: a free one).",
                            where)};
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

std::string name_of_peer(const tcp::socket& socket) {
    error_code ec;
    const tcp::endpoint peer = socket.remote_endpoint(ec);
    if (ec) return "a peer that has disconnected";
    return to_string(Endpoint{transport::unwrapped(peer.address()).to_string(), peer.port()});
}

Result<ControlPort> ControlPort::listen(const asio::any_io_executor& executor, const asio::ip::address& address,
                                        std::uint16_t port, std::chrono::milliseconds handshake_time) {
    const tcp::endpoint wanted(address, port);
    tcp::acceptor acceptor(executor);
    error_code ec;
    acceptor.open(wanted.protocol(), ec);
    if (!ec) ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);  // for a restart; two listeners still collide
    if (!ec && address.is_v6()) acceptor.set_option(asio::ip::v6_only(false), ec);
    if (!ec) acceptor.bind(wanted, ec);
    if (!ec) acceptor.listen(tcp::acceptor::max_listen_connections, ec);
    if (ec) return cannot_listen(wanted, ec);
    return ControlPort(std::move(acceptor), handshake_time);
}

ControlPort::ControlPort(tcp::acceptor acceptor, std::chrono::milliseconds handshake_time)
    : acceptor_(std::move(acceptor)), endpoint_(acceptor_.local_endpoint()), handshake_time_(handshake_time) {}

awaitable<std::optional<tcp::socket>> ControlPort::accept() {
    while (acceptor_.is_open()) {
        if (unidentified_ >= kMaxUnidentified) {
            co_await pause(acceptor_.get_executor(), kCrowdedPause);
            continue;
        }
        auto [ec, socket] = co_await acceptor_.async_accept(transport::kTuple);
        if (!acceptor_.is_open()) break;
        if (ec) {
            log(fmt::format("cannot accept a connection: {}; trying again", ec.message()));
            co_await pause(acceptor_.get_executor(), kAcceptPause);
            continue;
        }
        ++unidentified_;
        co_return std::move(socket);
    }
    co_return std::nullopt;
}

awaitable<std::optional<Greeting>> ControlPort::introduce(tcp::socket socket, std::string peer) {
    Result<Greeting> greeting = co_await greet(std::move(socket), Clock::now() + handshake_time_);
    --unidentified_;
    if (!greeting) {
        log(fmt::format("closed the connection of {}: {}", peer, greeting.error().message));
        co_return std::nullopt;
    }
    co_return std::move(*greeting);
}

void ControlPort::close() {
    error_code ignored;  // the port counts as closed all the same
    acceptor_.close(ignored);
}

void ControlPort::log(const std::string& line) {
    if (!lines_.admit(Clock::now())) return;
    spdlog::info("{}{}", log_line(line), lines_.last() ? " (more of these will not be shown for a while)" : "");
}

}  // namespace ddprun::daemon
