#include "tests/unit/rendezvous/daemon/fake_agent.hpp"

#include "rendezvous/protocol/json.hpp"

namespace ddprun::test {

FakeAgent::FakeAgent(asio::io_context& io, Endpoint daemon, protocol::Join join)
    : io_(io), daemon_(std::move(daemon)), join_(std::move(join)) {}

awaitable<void> FakeAgent::join() {
    auto client = co_await client::ControlClient::connect(daemon_, in(10s));
    if (!client) throw std::runtime_error(client.error().message);
    client_ = std::move(*client);
    const protocol::AgentMessage message = join_;
    client_->send(message);
    spawn(io_, listen());
}

awaitable<void> FakeAgent::listen() {
    const auto self = shared_from_this();
    while (client_) {
        auto message = co_await client_->receive();  // ends when crash() drops the client
        if (!message) {
            end_ = message.error().message;
            co_return;
        }
        if (const auto* welcome = std::get_if<protocol::Welcome>(&*message)) welcome_ = *welcome;
        if (std::holds_alternative<protocol::Heartbeat>(*message)) ++heartbeats_heard_;
        messages_.push_back(std::move(*message));
    }
}

void FakeAgent::start_heartbeats(Duration interval) {
    beating_ = true;
    spawn(io_, beat(interval));
}

awaitable<void> FakeAgent::beat(Duration interval) {
    const auto self = shared_from_this();
    const protocol::AgentMessage heartbeat = protocol::Heartbeat{};
    while (beating_ && client_) {
        client_->send(heartbeat);
        co_await pause(interval);
    }
}

awaitable<std::optional<protocol::DaemonMessage>> FakeAgent::next(Duration limit) {
    const TimePoint deadline = in(limit);
    while (Clock::now() < deadline) {
        while (!messages_.empty()) {
            protocol::DaemonMessage message = std::move(messages_.front());
            messages_.pop_front();
            const bool noise = std::holds_alternative<protocol::Welcome>(message) ||
                               std::holds_alternative<protocol::Waiting>(message) ||
                               std::holds_alternative<protocol::Heartbeat>(message);
            if (!noise) co_return message;
        }
        if (!end_.empty()) co_return std::nullopt;
        co_await pause(1ms);
    }
    co_return std::nullopt;
}

std::string FakeAgent::describe(const protocol::DaemonMessage& message) { return protocol::encode(message); }

protocol::Join join_as(const std::string& host, int min_nodes, int max_nodes) {
    protocol::Join join;
    join.node = "id-of-" + host;
    join.host = host;
    join.min_nodes = min_nodes;
    join.max_nodes = max_nodes;
    join.spare = true;
    return join;
}

}  // namespace ddprun::test
