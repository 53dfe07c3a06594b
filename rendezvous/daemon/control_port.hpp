#pragma once
// ControlPort: owns the socket at which agents and inspectors connect, and limits the cost of connections that have not
// sent their first message yet. Used by the Daemon alone, on the io_context's one thread. Its coroutines must end
// before it does.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <chrono>
#include <optional>
#include <string>

#include "common/error.hpp"
#include "common/line_limit.hpp"
#include "rendezvous/daemon/session.hpp"

namespace ddprun::daemon {

/// Connections that have not sent their first message yet; more wait in the listener's backlog.
inline constexpr int kMaxUnidentified = 256;

class ControlPort {
public:
    using tcp = boost::asio::ip::tcp;

    /// Binds the port (0: a free one). Errors: kInUse or kSystem, with the address and what to do. `handshake_time`:
    /// from the connection to its first message.
    [[nodiscard]] static Result<ControlPort> listen(const boost::asio::any_io_executor& executor,
                                                    const boost::asio::ip::address& address, std::uint16_t port,
                                                    std::chrono::milliseconds handshake_time);

    [[nodiscard]] tcp::endpoint endpoint() const { return endpoint_; }

    /// Waits for the next connection; tries again after errors. Returns nothing once the port is closed.
    [[nodiscard]] boost::asio::awaitable<std::optional<tcp::socket>> accept();
    /// Waits for the first message of a connection that accept() returned. Returns nothing, and logs why, when there is
    /// none in time or it is another message. `peer`: for the log.
    [[nodiscard]] boost::asio::awaitable<std::optional<Greeting>> introduce(tcp::socket socket, std::string peer);
    void close();

private:
    ControlPort(tcp::acceptor acceptor, std::chrono::milliseconds handshake_time);
    void log(const std::string& line);

    tcp::acceptor acceptor_;
    tcp::endpoint endpoint_;
    std::chrono::milliseconds handshake_time_;
    int unidentified_ = 0;
    LineLimit lines_;
};

/// Returns "10.0.0.7:40512", for the log.
[[nodiscard]] std::string name_of_peer(const boost::asio::ip::tcp::socket& socket);

}  // namespace ddprun::daemon
