#include "rendezvous/client/control_client.hpp"

#include <fmt/format.h>

#include "rendezvous/client/dial.hpp"
#include "rendezvous/protocol/json.hpp"
#include "rendezvous/transport/channel.hpp"

namespace ddprun::client {
namespace {

using boost::asio::awaitable;
using transport::Channel;

std::string name(const Endpoint& endpoint) { return fmt::format("the rendezvous daemon at {}", to_string(endpoint)); }

/// Holds no reference to the client, which may be destroyed before the wait ends.
awaitable<Result<protocol::DaemonMessage>> receive_message(std::shared_ptr<Channel> channel, Endpoint endpoint) {
    const Result<std::string> text = co_await channel->receive();
    if (!text) co_return with_context(name(endpoint), text.error());
    Result<protocol::DaemonMessage> message = protocol::decode_daemon_message(*text);
    if (!message) co_return with_context(name(endpoint), message.error());
    co_return message;
}

}  // namespace

ControlClient::ControlClient(std::shared_ptr<Channel> channel, Endpoint endpoint)
    : channel_(std::move(channel)), endpoint_(std::move(endpoint)) {}

ControlClient::~ControlClient() { channel_->abort(); }

awaitable<Result<std::unique_ptr<ControlClient>>> ControlClient::connect(Endpoint endpoint, TimePoint deadline,
                                                                         Pace pace, Security security) {
    Result<std::shared_ptr<Channel>> channel = co_await dial(endpoint, deadline, pace, std::move(security));
    if (!channel) co_return channel.error();
    std::unique_ptr<ControlClient> client(new ControlClient(std::move(*channel), std::move(endpoint)));
    co_return client;
}

awaitable<Result<protocol::DaemonMessage>> ControlClient::receive() { return receive_message(channel_, endpoint_); }

void ControlClient::send(const protocol::AgentMessage& message) { channel_->send(protocol::encode(message)); }

void ControlClient::reset() { channel_->reset(); }

awaitable<void> ControlClient::close() { return channel_->close(); }

std::string ControlClient::local_address() const { return channel_->local_address().to_string(); }

}  // namespace ddprun::client
