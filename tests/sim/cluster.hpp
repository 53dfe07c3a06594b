#pragma once
// SimCluster: the daemon's real state machines, coordinator and inquiries, among simulated agents and inspectors, on
// simulated time and a simulated network, by seed. A seed draws the cluster and its faults; a Script names the cluster,
// and its test the faults.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/daemon/decisions.hpp"
#include "tests/sim/agent.hpp"
#include "tests/sim/checker.hpp"
#include "tests/sim/inquiry_checker.hpp"
#include "tests/sim/inspectors.hpp"
#include "tests/sim/network.hpp"
#include "tests/sim/timeline.hpp"

namespace ddprun::sim {

/// A cluster in which nothing fails by chance. The seed still draws delays.
struct Script {
    int nodes = 2;  ///< n1, n2, …
    int min_nodes = 2;
    int max_nodes = 2;
    int max_restarts = 3;
    milliseconds work = 20'000ms;  ///< of the workers, until they succeed
    AtNotice at_notice = AtNotice::kGoOn;
};

class SimCluster {
public:
    explicit SimCluster(std::uint64_t seed);
    SimCluster(std::uint64_t seed, const Script& script);

    // ---- for the test of a script
    void run_for(milliseconds time);
    void run_to_end();
    void add_node(const std::string& host);
    /// Gives the daemon an order of ddpctl, unless it is paused.
    void order(const protocol::Order& order);
    void pause_daemon(milliseconds time) { daemon_.paused_until = time_.now() + time; }
    /// Delays everything to or from the daemon's host for some time.
    void cut_off_daemon(milliseconds time) { cut_off_daemon(time, true, true); }
    [[nodiscard]] Agent& agent(const NodeId& id) { return *agents_.at(id); }
    [[nodiscard]] Network& network() { return network_; }
    [[nodiscard]] TimePoint now() const { return time_.now(); }
    [[nodiscard]] const coordinator::State& job() const { return decisions_.job(); }

    /// Returns whether every agent has ended, or the limit of a run has passed (then broken_invariant() says so).
    [[nodiscard]] bool settled() const { return settled_; }
    void step();
    [[nodiscard]] const std::string& broken_invariant() const;

    /// FNV-1a over all events and actions of the daemon.
    [[nodiscard]] std::uint64_t trace_hash() const { return trace_.hash; }
    [[nodiscard]] const std::vector<std::string>& trace() const { return trace_.lines; }
    /// Returns the last lines of the trace, `count` at most.
    [[nodiscard]] std::string last_lines(std::size_t count) const;
    [[nodiscard]] const Checker& checker() const { return checker_; }
    [[nodiscard]] const InquiryChecker& inquiry_checker() const { return inquiry_checker_; }
    [[nodiscard]] std::string scenario() const { return plan_.text; }
    /// Returns how many agents were refused for good.
    [[nodiscard]] int refusals() const;
    /// Returns how many notifications have reached workers of other nodes.
    [[nodiscard]] int notified() const;
    /// Returns how often the workers of a node learned in which step all stop.
    [[nodiscard]] int agreements() const;
    /// Returns how often workers were frozen.
    [[nodiscard]] int freezes() const;
    /// Returns how often the kernel did not let killed workers end for long.
    [[nodiscard]] int stuck() const;
    /// Returns how many orders of an operator were followed.
    [[nodiscard]] int orders() const { return orders_; }
    /// Returns how many notices of preemption the daemon has got.
    [[nodiscard]] int notices() const { return notices_taken_; }
    /// Returns how many workers have exited with 75.
    [[nodiscard]] int preempted_workers() const;

private:
    /// `calm`: nothing fails by chance.
    SimCluster(std::uint64_t seed, bool calm, int nodes);
    void start();
    void plan_agents(int nodes);
    void plan_faults();
    void plan_daemon_host();
    void plan_programs();
    void plan_notices();
    void plan_losses_after_notice();
    void cut_off_daemon(milliseconds time, bool to_daemon, bool to_agents);
    void kill(Agent& agent, Agent::Kill how);
    void add_agent(const std::string& host, int incarnation, milliseconds arrival);
    void add_agent(protocol::Join greeting, milliseconds arrival);
    void add_stranger();
    Agent& any_agent();
    void order_for_any_node(protocol::Order::Command command);

    void dialed(ConnectionId id);
    void at_daemon(ConnectionId id, const std::optional<AgentMessage>& message);
    void from_inspector(const diagnosis::InquiryHappening& what);
    /// Returns the actions that were performed.
    std::vector<daemon::DaemonAction> handle(daemon::DaemonHappening what, ConnectionId from = -1);
    void perform(const daemon::DaemonAction& action, ConnectionId from);
    void send(const NodeId& node, const DaemonMessage& message);
    void open_store(Generation generation);
    void end_connection(ConnectionId id);
    void daemon_tick();
    void stop_daemon();
    void workers_vanished(const NodeId& node, Generation generation);
    [[nodiscard]] Truth truth() const;
    [[nodiscard]] TruthOfNodes truth_of_nodes() const;
    void note_notice(const coordinator::Happening& what);
    void check_time_limits(const daemon::DaemonAction& action);
    void check_losses();
    [[nodiscard]] bool may_be_lost_in_cut(const NodeId& id) const;
    void gave_up(const Agent& agent);
    void check_answer(const coordinator::State& before, const protocol::Join& join,
                      const std::optional<coordinator::Refuse>& refusal);
    void check_temporary_refusal(const coordinator::State& before, const protocol::Join& join,
                                 const coordinator::Refuse& refusal, bool full);
    void check_notified(const Agent& agent);
    void check_forwarding(const coordinator::State& before, const coordinator::NodeMessage& notification,
                          const std::vector<daemon::DaemonAction>& actions);
    void check_the_end();
    void expect(bool holds, const std::string& what);
    void record(const std::string& line);

    /// What the agents have in common, and the scenario as text.
    struct Plan {
        protocol::Join greeting;
        std::map<std::string, int> max_restarts;  ///< of each role
        Luck luck;
        std::string text;
        bool calm = false;
        bool has_notices = false;
        milliseconds faults_end{};
        milliseconds longest_cut{};  ///< of the daemon's host
    };
    /// The cut of the daemon's host from all others.
    struct Cut {
        TimePoint begun;
        TimePoint until;
        std::set<NodeId> members;  ///< nodes that nothing else disturbed when it began
    };
    struct Connections {
        std::map<ConnectionId, NodeId> owner;   ///< the agent at the other end
        std::map<ConnectionId, NodeId> joined;  ///< connections that the daemon knows by node
        std::map<NodeId, ConnectionId> of_node;
        std::map<NodeId, TimePoint> heartbeat_at;  ///< when the node got the newest one
        /// Those whose Join got a Welcome, or a refusal.
        std::map<ConnectionId, std::optional<coordinator::Refuse>> answered;
    };
    struct DaemonProcess {
        bool listens = true;
        bool stop_requested = false;
        TimePoint paused_until;
        bool opens_stores = true;
        std::optional<NodeId> starter = {};  ///< the agent on its host, which has started it; reset when that has ended
    };
    struct Trace {
        std::uint64_t hash = 14695981039346656037ull;
        std::vector<std::string> lines;
    };

    Timeline time_;
    Dice dice_;
    Dice rare_dice_;    ///< of faults that few seeds have: the others, and those that tests keep, stay the same runs
    Dice notice_dice_;  ///< of notices of preemption, in the same way
    Network network_;
    Inspectors inspectors_;
    daemon::Decisions decisions_;
    Checker checker_;
    InquiryChecker inquiry_checker_;
    std::map<NodeId, std::unique_ptr<Agent>> agents_;
    Connections connections_;
    DaemonProcess daemon_;
    Plan plan_;
    std::optional<Cut> cut_;
    int signals_ = 0;
    int orders_ = 0;
    int notices_taken_ = 0;
    TruthOfNotices notices_;
    std::set<NodeId> lost_;                                             ///< nodes that the coordinator counts as lost
    std::map<std::uint64_t, coordinator::Notification> notifications_;  ///< that the daemon has forwarded, by number
    std::string broken_;
    bool settled_ = false;
    Trace trace_;
};

}  // namespace ddprun::sim
