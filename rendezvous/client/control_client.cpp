#include "rendezvous/client/control_client.hpp"

#include <fmt/format.h>

#include "rendezvous/client/dial.hpp"
#include "rendezvous/coordinator/messages_json.hpp"

namespace ddprun::client {
namespace {

using boost::asio::awaitable;
using transport::Channel;

class ChannelClient final : public ControlClient {
public:
    ChannelClient(std::shared_ptr<Channel> channel, Endpoint endpoint)
        : channel_(std::move(channel)), endpoint_(std::move(endpoint)) {}

    ~ChannelClient() override { channel_->abort(); }  // which ends a receive() that still waits

    awaitable<Result<coordinator::DaemonMessage>> receive() override { return receive(channel_, endpoint_); }

    void send(const coordinator::AgentMessage& message) override { channel_->send(coordinator::encode(message)); }
    awaitable<void> close() override { return channel_->close(); }
    std::string local_address() const override { return channel_->local_address().to_string(); }

private:
    /// Holds nothing of the client, which may be gone when the wait ends.
    static awaitable<Result<coordinator::DaemonMessage>> receive(std::shared_ptr<Channel> channel, Endpoint endpoint) {
        const Result<std::string> text = co_await channel->receive();
        if (!text) co_return with_context(name(endpoint), text.error());
        Result<coordinator::DaemonMessage> message = coordinator::decode_daemon_message(*text);
        if (!message) co_return with_context(name(endpoint), message.error());
        co_return message;
    }

    static std::string name(const Endpoint& endpoint) {
        return fmt::format("the rendezvous daemon at {}", to_string(endpoint));
    }

    std::shared_ptr<Channel> channel_;
    Endpoint endpoint_;
};

}  // namespace

awaitable<Result<std::unique_ptr<ControlClient>>> ControlClient::connect(Endpoint endpoint, TimePoint deadline) {
    Result<std::shared_ptr<Channel>> channel = co_await dial(endpoint, deadline);
    if (!channel) co_return channel.error();
    std::unique_ptr<ControlClient> client = std::make_unique<ChannelClient>(std::move(*channel), std::move(endpoint));
    co_return client;
}

}  // namespace ddprun::client
