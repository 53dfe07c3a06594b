#pragma once
// Agent: a small agent that does what the coordinator may rely on, and not more. Its workers are a number and timers;
// they run by the real Lease.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/link/lease.hpp"
#include "rendezvous/protocol/messages.hpp"
#include "tests/sim/network.hpp"

namespace ddprun::sim {

class Agent {
public:
    /// Chances of its workers, drawn for each group.
    struct Luck {
        int failure_percent = 0;  ///< of groups in which one of its workers fails by itself
        int stall_percent = 0;    ///< of groups in which it reports stalls
        int fatal_percent = 5;    ///< of those failures by which a worker ends the job
        int stuck_percent = 2;    ///< of stops in which the kernel does not let its workers end for long
        int slow_percent = 30;    ///< of lost connections after which it dials late
        int deaf_percent = 1;     ///< of groups in which it does not obey an Abort
        int rarity = 1;           ///< failures, stuck and deaf nodes are so many times rarer, for many nodes
        milliseconds work{20'000};
    };
    /// What it needs of the simulation.
    struct World {
        Timeline& time;
        Dice& dice;
        Network& network;
        std::function<bool()> daemon_listens;
        std::function<void(Agent&, ConnectionId)> connected;
        std::function<void(const NodeId&, Generation)> workers_vanished;  ///< other than by success: peers may notice
        std::function<void(std::string)> mistake;                         ///< of the coordinator
    };
    enum class Life { kAlive, kExited, kKilled };
    /// What has happened to it, for the invariants.
    struct Facts {
        std::optional<Generation> succeeded = {};  ///< the newest group whose workers all exited with 0
        TimePoint succeeded_at = {};
        std::optional<protocol::Verdict> verdict = {};
        std::string refused = {};               ///< the reason; empty: it was not
        std::set<std::uint64_t> notified = {};  ///< the notifications that its workers got
        int failures = 0;                       ///< of its workers, that no peer caused
        int freezes = 0;                        ///< of its workers, because a lease had ended
        int stuck = 0;                          ///< stops in which the kernel did not let them end for long
    };

    Agent(protocol::Join greeting, Luck luck, World world);

    void start();
    void receive(ConnectionId id, const std::optional<DaemonMessage>& message);
    /// Lets one of its workers of `generation` fail because it lost its connection to a worker elsewhere.
    void peer_vanished(Generation generation);
    /// Lets one of its workers fail by itself, if they run.
    void fail();
    void signal(int number);
    /// Forwards a notification for the workers of all nodes, if its own run and it is connected.
    void notify();
    /// Kills the agent; its guard kills the workers. With `power_off` no peer sees the end of its connection.
    void kill(bool power_off);
    /// Stops the agent for some time, as SIGSTOP does. Its workers run on.
    void pause(milliseconds time);

    // ---- the actual state, for the invariants
    [[nodiscard]] const NodeId& id() const { return greeting_.node; }
    [[nodiscard]] const protocol::Join& greeting() const { return greeting_; }
    [[nodiscard]] Life life() const { return life_; }
    [[nodiscard]] std::optional<Generation> processes() const { return running_; }
    /// Returns whether these processes stand still, got SIGKILL, or have a stopped agent, which cannot freeze them
    /// (docs/design/026).
    [[nodiscard]] bool frozen() const { return frozen_ || stuck_ || paused_; }
    [[nodiscard]] bool signaled() const { return leaving_.has_value(); }
    [[nodiscard]] const Facts& facts() const { return facts_; }
    [[nodiscard]] const std::optional<ConnectionId>& connection() const { return connection_; }

private:
    void connect();
    void tick();
    void plan_tick();
    void resume();
    /// Draws whether something happens that is `rarity` times rarer than `percent`.
    [[nodiscard]] bool rarely(int percent);
    void lost_connection();
    void report(AgentMessage message);
    void begin(const protocol::Assignment& assignment);
    void plan_stalls(Generation generation);
    void report_stall(Generation generation);
    void answer(const protocol::RequestRecords& request);
    void worker_fails(Generation generation, int exit_code);
    /// Calls `what` after `delay`, if the workers of the generation have run until then; not before they are thawed.
    void after_work(milliseconds delay, Generation generation, std::function<void()> what);
    void check_lease();
    void drop();
    void get_stuck();
    void kill_workers();
    void stop_workers();
    void workers_ended();
    void answer_abort(Generation generation);
    void exit();

    protocol::Join greeting_;
    Luck luck_;
    World world_;
    Life life_ = Life::kAlive;
    std::optional<ConnectionId> connection_;
    bool welcomed_ = false;  ///< on this connection
    bool paused_ = false;
    TimePoint paused_until_;
    int ticks_planned_ = 0;
    agent::Lease lease_;
    bool frozen_ = false;
    bool known_to_daemon_ = false;  ///< it has had a Welcome
    TimePoint connected_at_;
    TimePoint sent_at_;
    TimePoint connect_at_;
    TimePoint exit_at_ = TimePoint::max();
    Generation newest_{0};  ///< the newest that it was assigned
    int rank_base_ = 0;     ///< in that one
    std::optional<Generation> running_;
    bool stopping_ = false;
    bool deaf_ = false;                  ///< it does not obey the next Abort
    bool stuck_ = false;                 ///< they have got SIGKILL, and end when the kernel lets them
    std::vector<AgentMessage> reports_;  ///< about the newest group; repeated after a reconnect
    std::optional<int> leaving_;
    Facts facts_;
};

}  // namespace ddprun::sim
