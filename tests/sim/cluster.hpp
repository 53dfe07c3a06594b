#pragma once
// SimCluster: the real coordinator among simulated agents, on simulated time and a simulated network, by seed.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/coordinator/coordinator.hpp"
#include "tests/sim/agent.hpp"
#include "tests/sim/checker.hpp"
#include "tests/sim/network.hpp"
#include "tests/sim/timeline.hpp"

namespace ddprun::sim {

class SimCluster {
public:
    explicit SimCluster(std::uint64_t seed);

    /// Everybody has ended, or the time in which a run must end is over (then broken_invariant() says so).
    [[nodiscard]] bool settled() const { return settled_; }
    void step();
    [[nodiscard]] std::string broken_invariant() const;

    /// FNV-1a over all events and actions of the coordinator.
    [[nodiscard]] std::uint64_t trace_hash() const { return hash_; }
    [[nodiscard]] const std::vector<std::string>& trace() const { return trace_; }
    [[nodiscard]] const Checker& checker() const { return checker_; }
    [[nodiscard]] std::string scenario() const { return scenario_; }

private:
    void plan_agents();
    void plan_faults();
    void add_agent(const std::string& host, int incarnation, milliseconds arrival);
    Agent& any_agent();

    void at_daemon(ConnectionId id, const std::optional<AgentMessage>& message);
    void feed(const coordinator::Event& event, ConnectionId from = -1);
    void perform(const coordinator::Action& action, ConnectionId from);
    void end_connection(ConnectionId id);
    void daemon_tick();
    void workers_vanished(const NodeId& node, Generation generation);
    [[nodiscard]] Truth truth() const;
    void check_the_end();
    void record(const std::string& line);

    Timeline time_;
    Dice dice_;
    Network network_;
    coordinator::State state_;
    Checker checker_;
    std::map<NodeId, std::unique_ptr<Agent>> agents_;
    std::map<ConnectionId, NodeId> connection_owner_;  ///< the agent at the other end
    std::map<ConnectionId, NodeId> joined_;            ///< connections that the daemon knows by node
    std::map<NodeId, ConnectionId> connection_of_;
    bool daemon_listens_ = true;
    TimePoint daemon_paused_until_;
    coordinator::Join greeting_;
    Agent::Luck luck_;
    int signals_ = 0;
    std::string scenario_;
    std::string broken_;
    bool settled_ = false;
    std::uint64_t hash_ = 14695981039346656037ull;
    std::vector<std::string> trace_;
};

}  // namespace ddprun::sim
