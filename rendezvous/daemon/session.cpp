#include "rendezvous/daemon/session.hpp"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "rendezvous/protocol/json.hpp"

namespace ddprun::daemon {

static_assert(protocol::kMaxMessageBytes == transport::kMaxMessageBytes);

namespace asio = boost::asio;
using asio::awaitable;
using protocol::AgentMessage;
using transport::Channel;

namespace {

/// Calls receive(), and drops the connection at `deadline`.
awaitable<Result<std::string>> receive_before(std::shared_ptr<Channel> channel, TimePoint deadline,
                                              std::size_t max_bytes) {
    asio::steady_timer timer(co_await asio::this_coro::executor, deadline);
    const auto late = std::make_shared<bool>(false);
    const std::weak_ptr<Channel> weak = channel;
    timer.async_wait([late, weak](const boost::system::error_code& ec) {
        if (ec) return;
        *late = true;
        if (const auto still_there = weak.lock()) still_there->abort();
    });
    Result<std::string> text = co_await channel->receive(max_bytes);
    if (!text && *late) co_return Error{Errc::kTimeout, "it did not join in time"};
    co_return text;
}

}  // namespace

awaitable<Result<Greeting>> greet(asio::ip::tcp::socket socket, TimePoint deadline, std::size_t max_bytes,
                                  transport::JobLines job_lines, transport::Security security) {
    Result<std::shared_ptr<Channel>> channel =
        co_await transport::accept_websocket(std::move(socket), deadline, std::move(job_lines), std::move(security));
    if (!channel) co_return channel.error();
    const Result<std::string> text = co_await receive_before(*channel, deadline, max_bytes);
    if (!text) co_return text.error();
    const Result<AgentMessage> message = protocol::decode_agent_message(*text);
    if (!message) co_return message.error();
    Greeting greeting;
    greeting.channel = std::move(*channel);
    if (const auto* join = std::get_if<protocol::Join>(&*message)) {
        greeting.first = *join;
    } else if (const auto* inspect = std::get_if<protocol::Inspect>(&*message)) {
        greeting.first = *inspect;
    } else if (const auto* order = std::get_if<protocol::Order>(&*message)) {
        greeting.first = *order;
    } else {
        co_return Error{Errc::kMalformed, "its first message is not a join"};
    }
    co_return greeting;
}

awaitable<Result<AgentMessage>> next_message(std::shared_ptr<Channel> channel) {
    const Result<std::string> text = co_await channel->receive();
    if (!text) co_return text.error();
    Result<AgentMessage> message = protocol::decode_agent_message(*text);
    if (message && std::holds_alternative<protocol::Join>(*message)) {
        co_return Error{Errc::kMalformed, "a second join on one connection"};
    }
    co_return message;
}

}  // namespace ddprun::daemon
