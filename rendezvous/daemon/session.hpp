#pragma once
// One agent's connection as typed messages: the handshake with its Join, then what it says. Knows no coordinator.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <memory>
#include <variant>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "rendezvous/coordinator/messages.hpp"
#include "rendezvous/transport/channel.hpp"

namespace ddprun::daemon {

/// A first message names one node; a stranger gets no more room than that.
inline constexpr std::size_t kMaxJoinBytes = 4u << 10;

/// How somebody introduces itself: an agent, or a ddpctl that wants to look.
struct Greeting {
    std::shared_ptr<transport::Channel> channel;
    std::variant<coordinator::Join, coordinator::Inspect> who;
};

/// Upgrade and first message, both before `deadline`. Errors: those of accept_websocket; kTimeout without it in time;
/// kMalformed, kLimit for another first message. The connection is closed then.
[[nodiscard]] boost::asio::awaitable<Result<Greeting>> greet(boost::asio::ip::tcp::socket socket, TimePoint deadline);

/// The next message of an agent that has joined. Errors: those of Channel::receive; kMalformed, also for a second Join.
[[nodiscard]] boost::asio::awaitable<Result<coordinator::AgentMessage>> next_message(
    std::shared_ptr<transport::Channel> channel);

}  // namespace ddprun::daemon
