#pragma once
// A Channel carries whole text messages in order between an agent and the daemon. This is the boundary at which TLS
// comes in: the code above it sees messages and errors only. Lives on the io_context's one thread.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/address.hpp>

#include <cstddef>
#include <memory>
#include <string>

#include "common/error.hpp"

namespace ddprun::transport {

/// A longer message ends the channel that should send it, or on which it arrives.
inline constexpr std::size_t kMaxMessageBytes = 8u << 20;
/// What may wait for a peer that does not read; twice the longest message.
inline constexpr std::size_t kMaxQueuedBytes = 16u << 20;

/// Dropping the last reference drops the connection. A pending receive() or close() may outlive it and then ends.
class Channel {
public:
    virtual ~Channel() = default;

    /// The next message. One caller at a time. Every error is final, and the connection is then closed:
    /// kClosed at either side's end, kLimit beyond kMaxMessageBytes or kMaxQueuedBytes, kMalformed for bad framing.
    [[nodiscard]] virtual boost::asio::awaitable<Result<std::string>> receive() = 0;

    /// Queues a message and returns at once; messages leave in order. A peer that does not read is dropped: when more
    /// than kMaxQueuedBytes wait, the channel closes and receive() says so. Ignored once the channel is closed or
    /// closing.
    virtual void send(std::string message) = 0;

    /// Sends what is queued, says goodbye and closes, within a second; then receive() ends with Errc::kClosed.
    [[nodiscard]] virtual boost::asio::awaitable<void> close() = 0;

    /// Drops the connection now.
    virtual void abort() = 0;

    /// Numeric addresses of the two ends, known for as long as the object lives; IPv4 is never written as IPv6.
    [[nodiscard]] virtual boost::asio::ip::address local_address() const = 0;
    [[nodiscard]] virtual boost::asio::ip::address peer_address() const = 0;
};

}  // namespace ddprun::transport
