#pragma once
// Agent: a simulated node. It runs what agent::Agent and agent::DaemonLink decide with, the worker group's step() and
// the link's, and performs their actions on simulated workers, a simulated network and simulated time.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "agent/group/worker_group.hpp"
#include "agent/link/link.hpp"
#include "rendezvous/client/dial_plan.hpp"
#include "rendezvous/protocol/messages.hpp"
#include "tests/sim/network.hpp"
#include "tests/sim/workers.hpp"

namespace ddprun::sim {

class Agent {
public:
    /// What it needs of the simulation.
    struct World {
        Timeline& time;
        Dice& dice;
        Network& network;
        std::function<void(Agent&, ConnectionId)> dialed;
        std::function<void(const NodeId&, Generation)> workers_vanished;  ///< other than by success: peers may notice
        std::function<void(const Agent&)> gave_up;                        ///< the daemon that it had
        std::function<void(std::string)> mistake;                         ///< of the coordinator, or of this node
    };
    enum class Life { kAlive, kExited, kKilled };
    enum class Kill {
        kAgent,        ///< its guard kills the workers
        kAgentUnread,  ///< the same, and messages that it has not read make its kernel reset the connection
        kGuard,        ///< the agent kills the workers, and ends
        kHost,         ///< no peer sees the end of its connection
    };
    /// What has happened to it, for the invariants.
    struct Facts {
        std::optional<protocol::Verdict> verdict = {};
        std::string refused = {};               ///< the reason; empty: it was not
        std::set<std::uint64_t> notified = {};  ///< the notifications that its workers got
        /// By generation: the calls of agree_to_stop() that its workers had made at the notice, and the agreed one.
        std::map<Generation, std::uint64_t> calls = {};
        std::map<Generation, std::uint64_t> stops = {};
        std::optional<TimePoint> time_limit_at = {};  ///< when it learned that the time limit is near
        int freezes = 0;                              ///< of its workers, because a lease had ended
    };

    Agent(protocol::Join greeting, Luck luck, World world);

    void start();
    void dial_answered(ConnectionId id, bool accepted);
    void receive(ConnectionId id, const std::optional<DaemonMessage>& message);
    void peer_vanished(Generation generation) { workers_.peer_vanished(generation); }
    /// Lets one of its workers fail by itself, if they run.
    void fail() { workers_.fail(); }
    /// Sends the agent a signal to stop.
    void signal(int number);
    /// Sends the agent SIGUSR1, for the workers of all nodes.
    void notify();
    /// Lets the agent learn that the scheduler's time limit is near.
    void near_time_limit();
    /// Holds the workers for some time, as Ctrl-Z does.
    void suspend(milliseconds time);
    void kill(Kill how);
    /// Stops the agent for some time, as SIGSTOP does. Its workers run on.
    void pause(milliseconds time);

    // ---- the actual state, for the invariants
    [[nodiscard]] const NodeId& id() const { return link_.join.node; }
    [[nodiscard]] const protocol::Join& greeting() const { return link_.join; }
    [[nodiscard]] Life life() const { return life_; }
    /// Returns the group of which this node has processes. Those that workers have left behind which all exited with 0
    /// do not count: they end within the grace, and the next group of this node waits for that.
    [[nodiscard]] std::optional<Generation> processes() const {
        return workers_.facts().succeeded == workers_.group() ? std::nullopt : workers_.group();
    }
    [[nodiscard]] bool has_processes() const { return workers_.group().has_value(); }
    /// Returns whether these processes stand still, got SIGKILL, or have a stopped agent, which cannot freeze them
    /// (docs/design/026).
    [[nodiscard]] bool frozen() const { return workers_.stand_still() || paused_; }
    /// Returns whether it still has the daemon that welcomed it, or looks for it for at least `time`.
    [[nodiscard]] bool has_daemon_for(milliseconds time) const {
        return life_ == Life::kAlive && !signaled() && link_.welcomed && link_.phase != agent::link::Phase::kEnded &&
               !link_.over && world_.time.now() + time < agent::link::given_up_at(link_);
    }
    [[nodiscard]] bool signaled() const { return group_.stop_signal.has_value(); }
    [[nodiscard]] const Facts& facts() const { return facts_; }
    [[nodiscard]] const Workers::Facts& workers() const { return workers_.facts(); }
    [[nodiscard]] const std::optional<ConnectionId>& connection() const { return connection_; }

private:
    /// One timer of the agent. `planned`: when the simulation looks at it next.
    struct Timer {
        std::optional<TimePoint> planned = {};
        std::uint64_t number = 0;
    };
    /// Lets the agent handle what has come from outside; later, if it is stopped.
    void input(std::function<void()> what);
    void resume();
    void raise(agent::Happening what);
    void handle_events();
    void to_link(agent::link::Happening what);
    void look_at_link();
    void look_at_group();
    void arm(Timer& timer, const std::optional<TimePoint>& due, void (Agent::*look)());

    void dial_again();
    void dial_failed(Error error);

    // ---- the actions of the link
    void perform(const agent::link::Dial& dial);
    void perform(const agent::link::Send& send);
    void perform(const agent::link::Reset&);
    void perform(const agent::link::Raise& raised);

    // ---- those of the worker group
    void perform(const agent::StartWorkers& action);
    void perform(const agent::StartMoreWorkers& action) { workers_.start_more(action.next); }
    void perform(const agent::EndStart&) { workers_.end_start(); }
    void perform(const agent::SignalGroup& action) { workers_.signal(action.signal); }
    void perform(const agent::SignalSpared&) { workers_.signal_spared(); }
    void perform(const agent::SuspendGroup&) { workers_.set_stopped(true); }
    void perform(const agent::ContinueGroup&) { workers_.set_stopped(false); }
    void perform(const agent::FreezeGroup&);
    void perform(const agent::ThawGroup&) { workers_.set_frozen(false); }
    void perform(const agent::GiveNotice& action);
    void perform(const agent::SetStop& action);
    void perform(const agent::NotifyWorkers& action);
    void perform(const agent::ForwardSignal& action);
    void perform(const agent::DropConnection&);
    void perform(const agent::SendMessage& action) { to_link(agent::link::Reported{action.message}); }
    void perform(const agent::ReportFailure& action);
    void perform(const agent::CheckForStalls& action);
    void perform(const agent::SendRecord& action);
    void perform(const agent::Finish& action);
    void perform(const auto&) {}  // for the user alone

    /// Returns whether the notice differs from what the workers know.
    [[nodiscard]] bool is_news(const protocol::Preempt& notice);
    void plan_stalls();
    void try_send(AgentMessage message);
    void close_connection();

    Luck luck_;
    World world_;
    Life life_ = Life::kAlive;
    bool paused_ = false;
    std::deque<std::function<void()>> waiting_;  ///< what has come while the agent was stopped
    std::deque<agent::Event> events_;
    bool handles_events_ = false;
    agent::link::State link_;
    agent::worker_group::State group_;
    Workers workers_;
    Timer link_timer_;
    Timer group_timer_;
    std::optional<client::DialPlan> dial_plan_;
    std::optional<ConnectionId> dialing_;
    std::optional<ConnectionId> connection_;
    Facts facts_;
    std::optional<protocol::Preempt> newest_notice_;
    TimePoint notice_deadline_;  ///< of that; the end of time: none
};

}  // namespace ddprun::sim
