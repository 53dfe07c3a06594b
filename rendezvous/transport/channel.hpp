#pragma once
// Channel: carries whole text messages in order between an agent and the daemon, with TLS or without:
// the code above it sees messages and errors only. It has one implementation, WebSocketChannel, and is
// abstract so that its users do not compile Beast. Used on the io_context's one thread.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/address.hpp>

#include <cstddef>
#include <memory>
#include <string>

#include "common/error.hpp"

namespace ddprun::transport {

/// Maximum size of a message. A longer one ends the channel that should send it, or on which it arrives. The codec has
/// the same limit, protocol::kMaxMessageBytes: change both.
inline constexpr std::size_t kMaxMessageBytes = 8u << 20;
/// Limit of the messages that wait for a peer that does not read; twice the longest message.
inline constexpr std::size_t kMaxQueuedBytes = 16u << 20;

/// Dropping the last reference drops the connection. A pending receive() or close() may outlive it and then ends.
class Channel {
public:
    virtual ~Channel() = default;

    /// Returns the next message. One caller at a time. Every error is final, and the connection is then closed: kClosed
    /// when either side has ended it, kLimit beyond `max_bytes` or kMaxQueuedBytes, kMalformed for bad framing, the
    /// system's error when the network has broken it.
    [[nodiscard]] virtual boost::asio::awaitable<Result<std::string>> receive(std::size_t max_bytes) = 0;
    [[nodiscard]] boost::asio::awaitable<Result<std::string>> receive() { return receive(kMaxMessageBytes); }

    /// Queues a message and returns at once; messages leave in order. When more than kMaxQueuedBytes wait for the peer,
    /// the channel closes and receive() returns kLimit. Does nothing once the channel is closed or closing.
    virtual void send(std::string message) = 0;

    /// Sends the queued messages and a close frame, and closes, within a second; then receive() ends with
    /// Errc::kClosed.
    [[nodiscard]] virtual boost::asio::awaitable<void> close() = 0;

    /// Drops the connection now.
    virtual void abort() = 0;
    /// The same, by a reset: the peer does not take it for the end of this process.
    virtual void reset() = 0;

    /// Returns the numeric address of this end, also after the end of the connection; IPv4 is never written as IPv6.
    [[nodiscard]] virtual boost::asio::ip::address local_address() const = 0;
};

}  // namespace ddprun::transport
