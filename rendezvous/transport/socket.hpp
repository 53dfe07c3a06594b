#pragma once
// Prepares the TCP sockets of the control plane, and closes them at a deadline. Used on the io_context's one thread.

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <memory>

#include "common/clock.hpp"

namespace ddprun::transport {

/// Sets close-on-exec, so that no worker inherits the socket, and TCP_NODELAY, because control messages are small and
/// wait for answers.
void prepare(boost::asio::ip::tcp::socket& socket);

/// Returns an IPv4 address of an IPv6 socket (::ffff:10.0.0.7) as plain IPv4; other addresses as they are.
[[nodiscard]] boost::asio::ip::address unwrapped(const boost::asio::ip::address& address);

/// Watchdog: closes a socket at a deadline, which ends every operation that waits on it. Does nothing once destroyed. A
/// deadline that works by closing needs no support by the layers above the socket (HTTP, WebSocket, TLS).
class Watchdog {
public:
    /// `socket` outlives the watchdog.
    Watchdog(boost::asio::ip::tcp::socket& socket, TimePoint deadline);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    [[nodiscard]] bool fired() const { return state_->fired; }

private:
    // Shared with the timer's handler, which may already be queued when the watchdog is destroyed.
    struct State {
        boost::asio::ip::tcp::socket* socket;
        bool fired = false;
    };
    boost::asio::steady_timer timer_;
    std::shared_ptr<State> state_;
};

}  // namespace ddprun::transport
