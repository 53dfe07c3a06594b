#pragma once
// Network: connections between simulated agents and the daemon. In order, with delays, resets, and hosts that are cut
// off. Messages are encoded and decoded on their way. A connection is a TCP stream, which repeats and reorders nothing:
// only across connections does the daemon get a message twice, or an older one after a newer one.

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "rendezvous/protocol/messages.hpp"
#include "tests/sim/timeline.hpp"

namespace ddprun::sim {

using protocol::AgentMessage;
using protocol::DaemonMessage;
using protocol::NodeId;

using ConnectionId = int;

class Network {
public:
    /// Called with nothing for the end of a connection.
    struct Ends {
        std::function<void(ConnectionId)> dialed;  ///< at the daemon, which calls answer_dial()
        std::function<void(ConnectionId, bool accepted)> dial_answered;
        std::function<void(ConnectionId, std::optional<AgentMessage>)> at_daemon;
        std::function<void(ConnectionId, std::optional<DaemonMessage>)> at_agent;
    };
    Network(Timeline& time, Dice& dice, Ends ends) : time_(time), dice_(dice), ends_(std::move(ends)) {}

    /// Begins to connect; `dial_answered` follows, unless the agent gives the connection up before that.
    ConnectionId dial(const NodeId& agent);
    void answer_dial(ConnectionId id, bool accepted);
    void give_up_dial(ConnectionId id) { at(id).open_at_agent = false; }
    void to_daemon(ConnectionId id, AgentMessage message);
    void to_agent(ConnectionId id, DaemonMessage message);
    /// The other end sees the close after the messages that are on their way.
    void close_by_agent(ConnectionId id);
    void close_by_daemon(ConnectionId id);
    /// The agent has died before it had read all messages: the daemon sees a reset, not a close.
    void reset_by_agent(ConnectionId id);
    /// Both ends see the connection end, what is on its way is lost.
    void reset(ConnectionId id);
    /// One end sees that the connection has ended, the other one does not; what is sent from now on is lost.
    void break_one_end(ConnectionId id);
    /// The agent resets the connection. The daemon sees that, or not. What is on its way is lost, or arrives after
    /// messages of the agent's next connection.
    void abandon(ConnectionId id);
    /// Returns whether the network has ended the connection.
    [[nodiscard]] bool was_broken(ConnectionId id) const { return at(id).was_reset; }
    enum class Direction { kToDaemon, kToAgent };
    /// Delays everything to or from the host until then, as TCP does.
    void cut_off(const NodeId& agent, Direction direction, TimePoint until);
    /// The same in both directions.
    void cut_off(const NodeId& agent, TimePoint until);
    /// The same for the daemon's host, and so for all agents of other hosts. It is no disturbance of theirs.
    void cut_off_daemon(Direction direction, TimePoint until);
    /// Puts the agent on the daemon's host: no cut concerns its messages.
    void put_beside_daemon(const NodeId& agent) { beside_daemon_.insert(agent); }
    [[nodiscard]] bool is_beside_daemon(const NodeId& agent) const { return beside_daemon_.contains(agent); }
    /// Drops everything to and from the host from now on, without the end of a connection.
    void power_off(const NodeId& agent);
    /// Notes that the agent may seem silent until then for a reason of its own.
    void disturb(const NodeId& agent, TimePoint until);
    /// Returns since when nothing has disturbed the messages of the agent; a time to come while something does.
    [[nodiscard]] TimePoint whole_since(const NodeId& agent) const;
    /// Returns an error in a message that was sent: no receiver would accept it. Empty: there was none.
    [[nodiscard]] const std::string& mistake() const { return mistake_; }

private:
    struct Connection {
        NodeId agent;
        bool open_at_agent = true;
        bool open_at_daemon = true;
        bool was_reset = false;
        TimePoint up;  ///< when the newest message to the daemon arrives
        TimePoint down;
    };
    Connection& at(ConnectionId id) { return connections_.at(static_cast<std::size_t>(id)); }
    [[nodiscard]] const Connection& at(ConnectionId id) const { return connections_.at(static_cast<std::size_t>(id)); }
    TimePoint arrival(const Connection& connection, Direction direction, TimePoint previous);
    void reset_at_daemon(ConnectionId id);
    void up(ConnectionId id, std::optional<AgentMessage> message);
    void down(ConnectionId id, std::optional<DaemonMessage> message);

    Timeline& time_;
    Dice& dice_;
    Ends ends_;
    std::deque<Connection> connections_;  ///< by id
    std::map<std::pair<NodeId, Direction>, TimePoint> cut_off_until_;
    std::map<Direction, TimePoint> daemon_cut_off_until_;
    std::set<NodeId> beside_daemon_;
    std::map<NodeId, TimePoint> disturbed_until_;
    std::string mistake_;
    std::set<NodeId> powered_off_;
};

}  // namespace ddprun::sim
