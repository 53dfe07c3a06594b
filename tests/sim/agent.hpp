#pragma once
// A small honest agent: what the coordinator may rely on, and not more. Its workers are a number and a few timers.

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/coordinator/messages.hpp"
#include "tests/sim/network.hpp"

namespace ddprun::sim {

class Agent {
public:
    /// How its workers fare; drawn anew for each group.
    struct Luck {
        int failure_percent = 0;  ///< of groups in which one of its workers fails by itself
        milliseconds work{20'000};
    };
    /// What it asks of the world around it.
    struct World {
        Timeline& time;
        Dice& dice;
        Network& network;
        std::function<bool()> daemon_listens;
        std::function<void(Agent&, ConnectionId)> connected;
        std::function<void(const NodeId&, Generation)> workers_vanished;  ///< other than by success: others may notice
    };
    enum class Life { kAlive, kExited, kKilled };

    Agent(coordinator::Join greeting, Luck luck, World world);

    void start();
    void receive(ConnectionId id, const std::optional<DaemonMessage>& message);
    /// One of its workers of `generation` lost its connection to a worker elsewhere and gives up.
    void peer_vanished(Generation generation);
    void signal(int number);
    /// The agent is killed, its guard takes the workers down. With `power` off nobody hears of it.
    void kill(bool power_off);

    // ---- the truth, for the invariants
    [[nodiscard]] const NodeId& id() const { return greeting_.node; }
    [[nodiscard]] Life life() const { return life_; }
    [[nodiscard]] std::optional<Generation> processes() const { return running_; }
    [[nodiscard]] std::optional<Generation> succeeded() const { return succeeded_; }
    [[nodiscard]] const std::optional<coordinator::Verdict>& verdict() const { return verdict_; }
    [[nodiscard]] bool told_to_stop() const { return leaving_.has_value(); }
    [[nodiscard]] bool gave_up() const { return gave_up_; }
    [[nodiscard]] const std::string& refused() const { return refused_; }
    [[nodiscard]] const std::optional<ConnectionId>& connection() const { return connection_; }
    [[nodiscard]] int failures() const { return failures_; }    ///< of its workers, by themselves
    [[nodiscard]] int own_stops() const { return own_stops_; }  ///< because it was cut off from the daemon
    [[nodiscard]] const std::string& mistake() const { return mistake_; }

private:
    void connect();
    void tick();
    void lost_connection();
    void report(AgentMessage message);
    void begin(const coordinator::Assignment& assignment);
    void worker_fails(Generation generation, int exit_code);
    void stop_workers();
    void workers_gone();
    void answer_abort(Generation generation);
    void exit();

    coordinator::Join greeting_;
    Luck luck_;
    World world_;
    Life life_ = Life::kAlive;
    std::optional<ConnectionId> connection_;
    bool welcomed_ = false;  ///< on this connection
    TimePoint heard_at_;
    TimePoint connected_at_;
    TimePoint said_at_;
    TimePoint connect_at_;
    TimePoint exit_at_ = TimePoint::max();
    Generation newest_{0};  ///< that it was ever assigned
    int rank_base_ = 0;     ///< in that one
    std::optional<Generation> running_;
    bool stopping_ = false;
    std::vector<AgentMessage> reports_;  ///< about the newest group; repeated after a reconnect
    std::optional<int> leaving_;
    std::optional<Generation> succeeded_;
    std::optional<coordinator::Verdict> verdict_;
    bool gave_up_ = false;
    std::string refused_;
    int failures_ = 0;
    int own_stops_ = 0;
    std::string mistake_;
};

}  // namespace ddprun::sim
