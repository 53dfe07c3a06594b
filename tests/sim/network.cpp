#include "tests/sim/network.hpp"

#include <algorithm>

namespace ddprun::sim {

ConnectionId Network::connect(const NodeId& agent) {
    const ConnectionId id = static_cast<ConnectionId>(connections_.size());
    connections_[id].agent = agent;
    return id;
}

TimePoint Network::arrival(const Connection& connection, TimePoint previous) {
    const milliseconds delay = dice_.percent(3) ? dice_.between(50ms, 500ms) : dice_.between(1ms, 20ms);
    TimePoint when = time_.now() + delay;
    if (const auto cut = cut_off_until_.find(connection.agent); cut != cut_off_until_.end()) {
        when = std::max(when, cut->second + delay);
    }
    return std::max(when, previous);
}

void Network::up(ConnectionId id, std::optional<AgentMessage> message) {
    Connection& connection = connections_.at(id);
    if (powered_off_.contains(connection.agent)) return;
    connection.up = arrival(connection, connection.up);
    time_.at(connection.up, [this, id, message = std::move(message)] {
        Connection& c = connections_.at(id);
        if (!c.open_at_daemon || c.was_reset) return;
        if (!message) c.open_at_daemon = false;
        ends_.at_daemon(id, message);
    });
}

void Network::down(ConnectionId id, std::optional<DaemonMessage> message) {
    Connection& connection = connections_.at(id);
    connection.down = arrival(connection, connection.down);
    time_.at(connection.down, [this, id, message = std::move(message)] {
        Connection& c = connections_.at(id);
        if (!c.open_at_agent || c.was_reset || powered_off_.contains(c.agent)) return;
        if (!message) c.open_at_agent = false;
        ends_.at_agent(id, message);
    });
}

void Network::to_daemon(ConnectionId id, AgentMessage message) {
    if (connections_.at(id).open_at_agent) up(id, std::move(message));
}

void Network::to_agent(ConnectionId id, DaemonMessage message) {
    if (connections_.at(id).open_at_daemon) down(id, std::move(message));
}

void Network::close_by_agent(ConnectionId id) {
    if (!std::exchange(connections_.at(id).open_at_agent, false)) return;
    up(id, std::nullopt);
}

void Network::close_by_daemon(ConnectionId id) {
    if (!std::exchange(connections_.at(id).open_at_daemon, false)) return;
    down(id, std::nullopt);
}

void Network::abandon(ConnectionId id) {
    connections_.at(id).was_reset = true;
    connections_.at(id).open_at_agent = false;
}

void Network::break_one_end(ConnectionId id) {
    Connection& connection = connections_.at(id);
    if (std::exchange(connection.was_reset, true)) return;
    if (dice_.percent(50)) {
        if (std::exchange(connection.open_at_agent, false)) ends_.at_agent(id, std::nullopt);
    } else if (std::exchange(connection.open_at_daemon, false)) {
        ends_.at_daemon(id, std::nullopt);
    }
}

void Network::reset(ConnectionId id) {
    if (std::exchange(connections_.at(id).was_reset, true)) return;
    time_.after(dice_.between(0ms, 200ms), [this, id] {
        if (std::exchange(connections_.at(id).open_at_daemon, false)) ends_.at_daemon(id, std::nullopt);
    });
    time_.after(dice_.between(0ms, 200ms), [this, id] {
        if (std::exchange(connections_.at(id).open_at_agent, false)) ends_.at_agent(id, std::nullopt);
    });
}

}  // namespace ddprun::sim
