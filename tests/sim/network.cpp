#include "tests/sim/network.hpp"

#include <algorithm>

#include "rendezvous/protocol/json.hpp"

namespace ddprun::sim {
namespace {

Result<AgentMessage> decoded(const AgentMessage& message) {
    return protocol::decode_agent_message(protocol::encode(message));
}
Result<DaemonMessage> decoded(const DaemonMessage& message) {
    return protocol::decode_daemon_message(protocol::encode(message));
}

/// Returns the message as its receiver reads it; nothing for the end of a connection.
template <typename Message>
std::optional<Message> received(std::optional<Message> message, std::string& mistake) {
    if (!message) return message;
    Result<Message> read = decoded(*message);
    if (read) return *std::move(read);
    mistake = "a message is refused by its receiver: " + read.error().message;
    return message;
}

}  // namespace

ConnectionId Network::dial(const NodeId& agent) {
    const ConnectionId id = static_cast<ConnectionId>(connections_.size());
    Connection& connection = connections_.emplace_back();
    connection.agent = agent;
    if (powered_off_.contains(agent)) return id;
    connection.up = arrival(connection, Direction::kToDaemon, connection.up);
    time_.at(connection.up, [this, id] {
        if (at(id).open_at_agent) ends_.dialed(id);
    });
    return id;
}

void Network::answer_dial(ConnectionId id, bool accepted) {
    Connection& connection = at(id);
    connection.down = arrival(connection, Direction::kToAgent, connection.down);
    time_.at(connection.down, [this, id, accepted] {
        const Connection& c = at(id);
        if (c.open_at_agent && !powered_off_.contains(c.agent)) ends_.dial_answered(id, accepted);
    });
}

TimePoint Network::arrival(const Connection& connection, Direction direction, TimePoint previous) {
    const milliseconds delay = dice_.percent(3) ? dice_.between(50ms, 500ms) : dice_.between(1ms, 20ms);
    TimePoint when = time_.now() + delay;
    if (const auto cut = cut_off_until_.find({connection.agent, direction}); cut != cut_off_until_.end()) {
        when = std::max(when, cut->second + delay);
    }
    const auto cut_of_all = daemon_cut_off_until_.find(direction);
    if (cut_of_all != daemon_cut_off_until_.end() && !is_beside_daemon(connection.agent))
        when = std::max(when, cut_of_all->second + delay);
    return std::max(when, previous);
}

void Network::up(ConnectionId id, std::optional<AgentMessage> message) {
    Connection& connection = at(id);
    if (powered_off_.contains(connection.agent)) return;
    connection.up = arrival(connection, Direction::kToDaemon, connection.up);
    time_.at(connection.up, [this, id, message = received(std::move(message), mistake_)] {
        Connection& c = at(id);
        if (!c.open_at_daemon || c.was_reset) return;
        if (!message) c.open_at_daemon = false;
        ends_.at_daemon(id, message);
    });
}

void Network::down(ConnectionId id, std::optional<DaemonMessage> message) {
    Connection& connection = at(id);
    connection.down = arrival(connection, Direction::kToAgent, connection.down);
    time_.at(connection.down, [this, id, message = received(std::move(message), mistake_)] {
        Connection& c = at(id);
        if (!c.open_at_agent || c.was_reset || powered_off_.contains(c.agent)) return;
        if (!message) c.open_at_agent = false;
        ends_.at_agent(id, message);
    });
}

void Network::cut_off(const NodeId& agent, Direction direction, TimePoint until) {
    if (is_beside_daemon(agent)) return;
    cut_off_until_[{agent, direction}] = until;
    disturb(agent, until);
}

void Network::cut_off_daemon(Direction direction, TimePoint until) { daemon_cut_off_until_[direction] = until; }

void Network::cut_off(const NodeId& agent, TimePoint until) {
    cut_off(agent, Direction::kToDaemon, until);
    cut_off(agent, Direction::kToAgent, until);
}

void Network::power_off(const NodeId& agent) {
    powered_off_.insert(agent);
    disturb(agent, TimePoint::max());
}

void Network::disturb(const NodeId& agent, TimePoint until) {
    TimePoint& disturbed_until = disturbed_until_[agent];
    disturbed_until = std::max(disturbed_until, until);
}

TimePoint Network::whole_since(const NodeId& agent) const {
    const auto found = disturbed_until_.find(agent);
    return found == disturbed_until_.end() ? TimePoint() : found->second;
}

void Network::to_daemon(ConnectionId id, AgentMessage message) {
    if (at(id).open_at_agent) up(id, std::move(message));
}

void Network::to_agent(ConnectionId id, DaemonMessage message) {
    if (at(id).open_at_daemon) down(id, std::move(message));
}

void Network::close_by_agent(ConnectionId id) {
    if (!std::exchange(at(id).open_at_agent, false)) return;
    disturb(at(id).agent, time_.now());
    up(id, std::nullopt);
}

void Network::reset_by_agent(ConnectionId id) {
    Connection& connection = at(id);
    if (!std::exchange(connection.open_at_agent, false)) return;
    disturb(connection.agent, time_.now());
    connection.was_reset = true;
    reset_at_daemon(id);
}

/// Lets the reset by the agent's end arrive.
void Network::reset_at_daemon(ConnectionId id) {
    time_.at(arrival(at(id), Direction::kToDaemon, at(id).up), [this, id] {
        if (std::exchange(at(id).open_at_daemon, false)) ends_.at_daemon(id, std::nullopt);
    });
}

void Network::close_by_daemon(ConnectionId id) {
    if (!std::exchange(at(id).open_at_daemon, false)) return;
    disturb(at(id).agent, time_.now());
    down(id, std::nullopt);
}

void Network::abandon(ConnectionId id) {
    Connection& connection = at(id);
    disturb(connection.agent, time_.now());
    connection.open_at_agent = false;
    if (dice_.percent(50)) return;
    connection.was_reset = true;
    if (powered_off_.contains(connection.agent) || dice_.percent(50)) return;
    reset_at_daemon(id);
}

void Network::break_one_end(ConnectionId id) {
    Connection& connection = at(id);
    if (std::exchange(connection.was_reset, true)) return;
    disturb(connection.agent, time_.now());
    if (dice_.percent(50)) {
        if (std::exchange(connection.open_at_agent, false)) ends_.at_agent(id, std::nullopt);
    } else if (std::exchange(connection.open_at_daemon, false)) {
        ends_.at_daemon(id, std::nullopt);
    }
}

void Network::reset(ConnectionId id) {
    if (std::exchange(at(id).was_reset, true)) return;
    disturb(at(id).agent, time_.now() + 200ms);
    time_.after(dice_.between(0ms, 200ms), [this, id] {
        if (std::exchange(at(id).open_at_daemon, false)) ends_.at_daemon(id, std::nullopt);
    });
    time_.after(dice_.between(0ms, 200ms), [this, id] {
        if (std::exchange(at(id).open_at_agent, false)) ends_.at_agent(id, std::nullopt);
    });
}

}  // namespace ddprun::sim
