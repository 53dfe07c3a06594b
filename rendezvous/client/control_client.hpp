#pragma once
// ControlClient: owns the connection of an agent or of ddpctl to the daemon. Used on the io_context's one thread.

#include <boost/asio/awaitable.hpp>

#include <memory>
#include <string>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "rendezvous/client/pace.hpp"
#include "rendezvous/client/security.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::transport {
class Channel;
}

namespace ddprun::client {

class ControlClient {
public:
    /// Connects and upgrades to WebSocket, retrying while nothing listens there, until `deadline`, at `pace`.
    /// Errors: kUnreachable or kTimeout with endpoint, tries and last cause; kClosed if Pace::refused_until shows that
    /// a daemon which ran has ended; at once kRefused when something that is not a ddprund answers there, kMismatch
    /// (another version), kInUse (another user's) and kUntrusted when the daemon's key is not that of `security`, or
    /// one end uses no TLS.
    [[nodiscard]] static boost::asio::awaitable<Result<std::unique_ptr<ControlClient>>> connect(Endpoint endpoint,
                                                                                                TimePoint deadline,
                                                                                                Pace pace = {},
                                                                                                Security security = {});

    /// Ends a receive() that still waits.
    ~ControlClient();
    ControlClient(const ControlClient&) = delete;
    ControlClient& operator=(const ControlClient&) = delete;
    /// Returns the next message. Errors: kClosed when the daemon ended the connection; kMalformed (then close).
    [[nodiscard]] boost::asio::awaitable<Result<protocol::DaemonMessage>> receive();
    void send(const protocol::AgentMessage& message);
    [[nodiscard]] boost::asio::awaitable<void> close();
    /// Drops a connection that brings nothing any more; the daemon does not take that for the end of this process.
    void reset();
    /// Returns the numeric address of this node as the daemon sees it.
    [[nodiscard]] std::string local_address() const;

private:
    ControlClient(std::shared_ptr<transport::Channel> channel, Endpoint endpoint);

    std::shared_ptr<transport::Channel> channel_;
    Endpoint endpoint_;
};

}  // namespace ddprun::client
