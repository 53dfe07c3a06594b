#pragma once
// A Channel carries whole text messages in order between an agent and the daemon. This is the boundary at which TLS comes
// in: the code above it sees messages and errors only. Lives on the io_context's one thread.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/address.hpp>

#include <memory>
#include <string>

#include "common/error.hpp"

namespace ddprun::transport {

class Channel {
public:
    virtual ~Channel() = default;

    /// The next message. Errors: Errc::kClosed at the peer's end, Errc::kLimit beyond kMaxMessageBytes. One caller at a time.
    [[nodiscard]] virtual boost::asio::awaitable<Result<std::string>> receive() = 0;

    /// Queues a message and returns at once; messages leave in order. A peer that does not read is dropped: when more than
    /// kMaxQueuedBytes wait, the channel closes and receive() says so.
    virtual void send(std::string message) = 0;

    /// Sends what is queued, says goodbye and closes, within a second; then receive() ends with Errc::kClosed.
    [[nodiscard]] virtual boost::asio::awaitable<void> close() = 0;

    /// Drops the connection now.
    virtual void abort() = 0;

    [[nodiscard]] virtual boost::asio::ip::address local_address() const = 0;
    [[nodiscard]] virtual boost::asio::ip::address peer_address() const = 0;
};

}  // namespace ddprun::transport
