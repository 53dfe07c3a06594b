#include "rendezvous/daemon/control_port.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/ip/v6_only.hpp>
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

constexpr std::chrono::milliseconds kCrowdedPause{10};
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

std::string name_of_peer(const tcp::socket& socket) {
    error_code ec;
    const tcp::endpoint peer = socket.remote_endpoint(ec);
    if (ec) return "a peer that has disconnected";
    return to_string(Endpoint{transport::unwrapped(peer.address()).to_string(), peer.port()});
}

std::string address_of_peer(const tcp::socket& socket) {
    error_code ec;
    const tcp::endpoint peer = socket.remote_endpoint(ec);
    return ec ? "" : transport::unwrapped(peer.address()).to_string();
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
    if (!ec) acceptor.non_blocking(true, ec);
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
        // Not async_accept(): between the accept and this coroutine another handler could open the next store.
        if (std::optional<tcp::socket> socket = accept_waiting()) co_return std::move(socket);
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

std::optional<tcp::socket> ControlPort::accept_waiting() {
    tcp::socket socket(acceptor_.get_executor());
    do {
        acceptor_.accept(socket, accept_error_);
    } while (accept_error_ == asio::error::connection_aborted);
    if (accept_error_) return std::nullopt;
    ++unidentified_;
    return socket;
}

/// Waits for the first byte of a connection, which stays unread.
awaitable<ControlPort::FirstByte> ControlPort::first_byte(tcp::socket& socket, TimePoint deadline) {
    asio::steady_timer timer(socket.get_executor(), deadline);
    const auto first =
        co_await (socket.async_wait(tcp::socket::wait_read, transport::kTuple) || timer.async_wait(transport::kTuple));
    if (first.index() == 1) co_return FirstByte::kNone;
    char byte = 0;
    if (::recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1) co_return FirstByte::kOther;
    co_return store::may_begin_with(byte) ? FirstByte::kOfStoreClient : FirstByte::kOther;
}

awaitable<std::optional<Introduction>> ControlPort::introduce(tcp::socket socket, std::string peer,
                                                              transport::JobLine job_line) {
    const TimePoint deadline = Clock::now() + handshake_time_;
    const FirstByte first = co_await first_byte(socket, deadline);
    if (first != FirstByte::kOther) {
        --unidentified_;
        error_code released;
        Introduction client = StoreClient{UniqueFd(socket.release(released)), first == FirstByte::kNone};
        co_return std::move(client);
    }
    Result<Greeting> greeting = co_await greet(std::move(socket), deadline, std::move(job_line));
    --unidentified_;
    if (!greeting) {
        log_closed(peer, greeting.error().message);
        co_return std::nullopt;
    }
    Introduction made = std::move(*greeting);
    co_return std::move(made);
}

void ControlPort::log_closed(const std::string& peer, const std::string& why) {
    log(fmt::format("closed the connection of {}: {}", peer, why));
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
