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

    awaitable<Result<coordinator::DaemonMessage>> receive() override {
        Result<std::string> text = co_await channel_->receive();
        if (!text) co_return with_context(context(), text.error());
        Result<coordinator::DaemonMessage> message = coordinator::decode_daemon_message(*text);
        if (!message) co_return with_context(context(), message.error());
        co_return message;
    }

    void send(const coordinator::AgentMessage& message) override { channel_->send(coordinator::encode(message)); }
    awaitable<void> close() override { return channel_->close(); }
    std::string local_address() const override { return channel_->local_address().to_string(); }

private:
    std::string context() const { return fmt::format("the rendezvous daemon at {}", to_string(endpoint_)); }

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
