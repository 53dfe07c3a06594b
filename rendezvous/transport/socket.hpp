#pragma once
// What every TCP socket of the control plane needs, framing apart: options, addresses, and an end when its time is up.

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <memory>

#include "common/clock.hpp"

namespace ddprun::transport {

/// Close-on-exec, so that no worker inherits it, and no delay: control messages are small and wait for answers.
void prepare(boost::asio::ip::tcp::socket& socket);

/// IPv4 behind an IPv6 socket (::ffff:10.0.0.7) as plain IPv4; other addresses as they are.
[[nodiscard]] boost::asio::ip::address unwrapped(const boost::asio::ip::address& address);

/// Closes a socket at a deadline, which ends every operation that waits on it; harmless once destroyed. A deadline that
/// works by closing needs no co-operation from the layers between (HTTP, WebSocket, TLS).
class Watchdog {
public:
    /// `socket` outlives the watchdog.
    Watchdog(boost::asio::ip::tcp::socket& socket, TimePoint deadline);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    [[nodiscard]] bool fired() const { return state_->fired; }

private:
    // Shared with the timer's handler, which may already be queued when the watchdog goes.
    struct State {
        boost::asio::ip::tcp::socket* socket;
        bool fired = false;
    };
    boost::asio::steady_timer timer_;
    std::shared_ptr<State> state_;
};

}  // namespace ddprun::transport
