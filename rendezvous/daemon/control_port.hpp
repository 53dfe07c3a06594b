#pragma once
// ControlPort: owns the socket at which agents, inspectors and TCPStore clients connect, closes the connections of
// other users of this host, distinguishes the rest by their first byte, and limits the cost of connections that have
// not sent their first message yet. Used by the Daemon alone, on the io_context's one thread. Its coroutines must end
// before it does.

#include <spdlog/common.h>

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
#include "common/system/peer_owner.hpp"
#include "common/system/unique_fd.hpp"
#include "rendezvous/daemon/session.hpp"
#include "rendezvous/daemon/strangers.hpp"

namespace ddprun::daemon {

/// A connection that was accepted and has sent nothing yet.
struct Newcomer {
    boost::asio::ip::tcp::socket socket;
    std::string peer;     ///< "10.0.0.7:40512", for the log
    std::string address;  ///< "10.0.0.7"; a link-local one is without its interface
    bool own_user;        ///< it is of this host, and of the user of this process
    Strangers::Place place;
};

/// A connection that has begun as a client of PyTorch's TCPStore does. None of its bytes has been read.
struct StoreClient {
    UniqueFd socket;
    bool own_host = false;  ///< it is of this host
    bool silent = false;    ///< it has sent nothing in time, as the second connection of a PyTorch 1.13 client
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
                                                    std::chrono::milliseconds handshake_time,
                                                    transport::Security security = {});

    [[nodiscard]] tcp::endpoint endpoint() const { return endpoint_; }

    /// Waits for the next connection; tries again after errors. Returns nothing once the port is closed.
    [[nodiscard]] boost::asio::awaitable<std::optional<Newcomer>> accept();
    /// Accepts a connection that waits already, also beyond kMaxStrangers. Returns nothing if there is none, or if it
    /// was another user's and was closed; in the second case may_have_waiting() returns true.
    [[nodiscard]] std::optional<Newcomer> accept_waiting();
    [[nodiscard]] bool may_have_waiting() const { return !accept_error_; }
    /// Waits for the first message of a connection that was accepted. Returns nothing, and logs why, when it is another
    /// message, or an agent's is not there in time. `peer`: for the log.
    [[nodiscard]] boost::asio::awaitable<std::optional<Introduction>> introduce(Newcomer newcomer,
                                                                                transport::JobLines job_lines);
    /// Logs that the connection of `peer` was closed, unless there were many such lines just now.
    void log_closed(const std::string& peer, const std::string& why,
                    spdlog::level::level_enum level = spdlog::level::info);
    void close();

private:
    enum class FirstByte {
        kNone,           ///< nothing has arrived until the deadline, or until the place was needed
        kOfStoreClient,  ///< the code of a TCPStore request
        kOther,          ///< an agent, another protocol, or the end of the connection
    };

    ControlPort(tcp::acceptor acceptor, std::chrono::milliseconds handshake_time, transport::Security security);
    [[nodiscard]] static boost::asio::awaitable<FirstByte> first_byte(Newcomer& newcomer, TimePoint deadline);
    void log_foreign(const std::string& peer, const PeerOwner& owner);
    void log(const std::string& line, spdlog::level::level_enum level = spdlog::level::info);

    tcp::acceptor acceptor_;
    tcp::endpoint endpoint_;
    std::chrono::milliseconds handshake_time_;
    transport::Security security_;
    PeerOwners owners_;
    Strangers strangers_;
    unsigned accepts_ = 0;
    boost::system::error_code accept_error_;  ///< of the last accept
    LineLimit lines_;
};

}  // namespace ddprun::daemon
