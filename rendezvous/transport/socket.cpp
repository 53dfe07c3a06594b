#include "rendezvous/transport/socket.hpp"

#include <fcntl.h>

namespace ddprun::transport {

namespace asio = boost::asio;
using asio::ip::tcp;

void prepare(tcp::socket& socket) {
    // Asio 1.81 opens and accepts without SOCK_CLOEXEC. The process has one thread that forks, this one: no fork
    // intervenes.
    ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
    boost::system::error_code ignored;  // a delayed packet is slower, not wrong
    socket.set_option(tcp::no_delay(true), ignored);
}

asio::ip::address unwrapped(const asio::ip::address& address) {
    if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
}

Watchdog::Watchdog(tcp::socket& socket, TimePoint deadline)
    : timer_(socket.get_executor(), deadline), state_(std::make_shared<State>(State{&socket})) {
    timer_.async_wait([state = state_](const boost::system::error_code& ec) {
        if (ec || state->socket == nullptr) return;
        state->fired = true;
        boost::system::error_code ignored;  // the socket counts as closed all the same
        state->socket->close(ignored);
    });
}

Watchdog::~Watchdog() { state_->socket = nullptr; }

}  // namespace ddprun::transport
