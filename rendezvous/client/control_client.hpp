#pragma once
// ControlClient: an agent's one connection to the daemon, typed. Lives on the io_context's one thread.

#include <boost/asio/awaitable.hpp>

#include <memory>
#include <string>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "rendezvous/coordinator/messages.hpp"

namespace ddprun::client {

class ControlClient {
public:
    /// Connects and upgrades to WebSocket, retrying while nobody listens there, until `deadline`.
    /// Errors: kUnreachable or kTimeout with endpoint, tries and last cause; kRefused when something that is not a
    /// ddprund answers there.
    [[nodiscard]] static boost::asio::awaitable<Result<std::unique_ptr<ControlClient>>> connect(Endpoint endpoint,
                                                                                                TimePoint deadline);

    virtual ~ControlClient() = default;
    /// The next message. Errors: kClosed when the daemon ended the connection; kMalformed (then close).
    [[nodiscard]] virtual boost::asio::awaitable<Result<coordinator::DaemonMessage>> receive() = 0;
    virtual void send(const coordinator::AgentMessage& message) = 0;
    [[nodiscard]] virtual boost::asio::awaitable<void> close() = 0;
    /// The numeric address of this node as the daemon sees it.
    [[nodiscard]] virtual std::string local_address() const = 0;
};

}  // namespace ddprun::client
