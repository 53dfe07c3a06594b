#pragma once
// ControlPort: owns the socket at which agents, inspectors and TCPStore clients connect, distinguishes them by their
// first byte, and limits the cost of connections that have not sent their first message yet. Used by the Daemon alone,
// on the io_context's one thread. Its coroutines must end before it does.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <variant>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/line_limit.hpp"
#include "common/system/unique_fd.hpp"
#include "rendezvous/daemon/session.hpp"

namespace ddprun::daemon {

/// Connections that have not sent their first message yet; more wait in the listener's backlog.
inline constexpr int kMaxUnidentified = 256;

/// A connection that has begun as a client of PyTorch's TCPStore does. None of its bytes has been read.
struct StoreClient {
    UniqueFd socket;
    bool silent = false;  ///< it has sent nothing in time, as the second connection of a PyTorch 1.13 client
};

/// The beginning of a connection.
using Introduction = std::variant<Greeting, StoreClient>;

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
    /// Accepts a connection that waits already, also beyond kMaxUnidentified. Returns nothing if there is none.
    [[nodiscard]] std::optional<tcp::socket> accept_waiting();
    /// Waits for the first message of a connection that was accepted. Returns nothing, and logs why, when it is another
    /// message, or an agent's is not there in time. `peer`: for the log.
    [[nodiscard]] boost::asio::awaitable<std::optional<Introduction>> introduce(tcp::socket socket, std::string peer,
                                                                                transport::JobLine job_line);
    /// Logs that the connection of `peer` was closed, unless there were many such lines just now.
    void log_closed(const std::string& peer, const std::string& why);
    void close();

private:
    enum class FirstByte {
        kNone,           ///< nothing has arrived until the deadline
        kOfStoreClient,  ///< the code of a TCPStore request
        kOther,          ///< an agent, another protocol, or the end of the connection
    };

    ControlPort(tcp::acceptor acceptor, std::chrono::milliseconds handshake_time);
    [[nodiscard]] static boost::asio::awaitable<FirstByte> first_byte(tcp::socket& socket, TimePoint deadline);
    void log(const std::string& line);

    tcp::acceptor acceptor_;
    tcp::endpoint endpoint_;
    std::chrono::milliseconds handshake_time_;
    int unidentified_ = 0;
    boost::system::error_code accept_error_;  ///< of the last accept
    LineLimit lines_;
};

/// Returns "10.0.0.7:40512", for the log.
[[nodiscard]] std::string name_of_peer(const boost::asio::ip::tcp::socket& socket);
/// Returns "10.0.0.7"; empty when the peer has disconnected.
[[nodiscard]] std::string address_of_peer(const boost::asio::ip::tcp::socket& socket);

}  // namespace ddprun::daemon
