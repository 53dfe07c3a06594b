#pragma once
// Reads one connection as typed messages: the handshake with the first message, then the others. Knows no coordinator.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <memory>
#include <variant>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/job_limits.hpp"
#include "rendezvous/protocol/messages.hpp"
#include "rendezvous/transport/channel.hpp"
#include "rendezvous/transport/websocket.hpp"

namespace ddprun::daemon {

/// Limit of the first message of a sender that is known: a process of this host, which is the user's own, or one that
/// has the job key. The largest Join fits: a role for each program, and five more texts (run id, command, user, ids)
/// with the members that are not texts. JSON may write one byte as six.
inline constexpr std::size_t kMaxJoinBytes = 6 * (kMaxPrograms + 5) * kMaxRunIdBytes;

/// Limit of the first message from another host with --insecure. With transport::kMaxHandshakeBytes it makes 4 KiB.
inline constexpr std::size_t kMaxStrangersJoinBytes = 3u << 10;

/// The first message of a connection: an agent joins, or a ddpctl inspects.
struct Greeting {
    std::shared_ptr<transport::Channel> channel;
    std::variant<protocol::Join, protocol::Inspect, protocol::Order> first;
};

/// Accepts the WebSocket and reads the first message, of `max_bytes`, both before `deadline`. Errors, after which the
/// connection is closed: those of accept_websocket; kTimeout without a message in time; kMalformed, kLimit for another
/// message.
[[nodiscard]] boost::asio::awaitable<Result<Greeting>> greet(boost::asio::ip::tcp::socket socket, TimePoint deadline,
                                                             std::size_t max_bytes, transport::JobLines job_lines,
                                                             transport::Security security);

/// Reads the next message of an agent that has joined. Errors: those of Channel::receive; kMalformed, also for a second
/// Join.
[[nodiscard]] boost::asio::awaitable<Result<protocol::AgentMessage>> next_message(
    std::shared_ptr<transport::Channel> channel);

}  // namespace ddprun::daemon
