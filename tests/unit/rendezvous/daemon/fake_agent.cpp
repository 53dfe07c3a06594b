#include "tests/unit/rendezvous/fake_agent.hpp"

#include "rendezvous/coordinator/messages_json.hpp"

namespace ddprun::test {

FakeAgent::FakeAgent(asio::io_context& io, Endpoint daemon, coordinator::Join join)
    : io_(io), daemon_(std::move(daemon)), join_(std::move(join)) {}

awaitable<void> FakeAgent::join() {
    auto client = co_await client::ControlClient::connect(daemon_, in(10s));
    if (!client) throw std::runtime_error(client.error().message);
    client_ = std::move(*client);
    const coordinator::AgentMessage message = join_;
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
        if (const auto* welcome = std::get_if<coordinator::Welcome>(&*message)) welcome_ = *welcome;
        if (std::holds_alternative<coordinator::Heartbeat>(*message)) ++heartbeats_heard_;
        messages_.push_back(std::move(*message));
    }
}

void FakeAgent::start_heartbeats(Duration interval) {
    beating_ = true;
    spawn(io_, beat(interval));
}

awaitable<void> FakeAgent::beat(Duration interval) {
    const auto self = shared_from_this();
    const coordinator::AgentMessage heartbeat = coordinator::Heartbeat{};
    while (beating_ && client_) {
        client_->send(heartbeat);
        co_await pause(interval);
    }
}

awaitable<std::optional<coordinator::DaemonMessage>> FakeAgent::next(Duration limit) {
    const TimePoint deadline = in(limit);
    while (Clock::now() < deadline) {
        while (!messages_.empty()) {
            coordinator::DaemonMessage message = std::move(messages_.front());
            messages_.pop_front();
            const bool noise = std::holds_alternative<coordinator::Welcome>(message) ||
                               std::holds_alternative<coordinator::Waiting>(message) ||
                               std::holds_alternative<coordinator::Heartbeat>(message);
            if (!noise) co_return message;
        }
        if (!end_.empty()) co_return std::nullopt;
        co_await pause(1ms);
    }
    co_return std::nullopt;
}

std::string FakeAgent::describe(const coordinator::DaemonMessage& message) { return coordinator::encode(message); }

coordinator::Join join_as(const std::string& host, int min_nodes, int max_nodes) {
    coordinator::Join join;
    join.node = "id-of-" + host;
    join.host = host;
    join.min_nodes = min_nodes;
    join.max_nodes = max_nodes;
    return join;
}

}  // namespace ddprun::test
