#pragma once
// Workers: the processes of a simulated node, as agent::LocalGroup has real ones. They are numbers and timers: they
// work, fail by themselves or because of a peer, take signals, stand still, leave strays, and may be stuck in the
// kernel. The agent may be stopped: they go on.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "agent/group/events.hpp"
#include "common/ids.hpp"
#include "rendezvous/protocol/messages.hpp"
#include "tests/sim/timeline.hpp"

namespace ddprun::sim {

/// What the workers of a program do after a notice of preemption.
enum class AtNotice {
    kGoOn,   ///< they do not know of it
    kStop,   ///< each exits with 75 by itself, because of SIGUSR1 or the file
    kAgree,  ///< they wait for the call of agree_to_stop() in which all stop
};

/// Chances of the workers of a node, drawn for each group.
struct Luck {
    int failure_percent = 0;   ///< of groups in which a worker fails by itself
    int stall_percent = 0;     ///< of groups in which the agent finds stalls
    int fatal_percent = 5;     ///< of those failures by which a worker ends the job
    int spawn_percent = 1;     ///< of groups in which a worker cannot be started
    int stuck_percent = 2;     ///< of stops in which the kernel does not let workers end for long
    int stubborn_percent = 4;  ///< of groups whose workers ignore SIGTERM
    int stray_percent = 10;    ///< of groups that leave a process behind
    int sliced_percent = 20;   ///< of groups that are started in two slices
    AtNotice at_notice = AtNotice::kGoOn;
    int done_percent = 0;  ///< of workers that exit with 0 where they could exit with 75
    int rarity = 1;        ///< failures and stuck nodes are so many times rarer, for many nodes
    milliseconds work{20'000};
};

class Workers {
public:
    /// What it needs of the simulation.
    struct World {
        Timeline& time;
        Dice& dice;
        std::function<void(agent::Happening)> happened;
        std::function<void(Generation)> vanished;  ///< a worker, other than by success: peers may notice
    };
    /// What has happened, for the invariants.
    struct Facts {
        std::optional<Generation> succeeded = {};  ///< the newest group whose workers all exited with 0, or with 75
        TimePoint succeeded_at = {};
        std::optional<Generation> preempted = {};  ///< the newest of these groups in which one exited with 75
        int preemptions = 0;                       ///< workers that exited with 75
        TimePoint started_at = {};                 ///< the newest group
        int failures = 0;                          ///< of workers, that no peer caused
        int stuck = 0;                             ///< stops in which the kernel did not let them end for long
    };

    Workers(int slots, Luck luck, World world);

    // ---- what the agent does with them
    void start(const protocol::Assignment& assignment);
    void start_more(LocalRank next);
    void end_start();
    void signal(int number);
    void signal_spared();
    void set_stopped(bool stopped) { stopped_ = stopped; }
    /// Stops or continues the control group, if the node has one.
    void set_frozen(bool frozen) { frozen_ = frozen && has_control_group_; }
    /// Gives them SIGUSR1.
    void notify();
    /// Gives them notice of a preemption.
    void give_notice();
    /// Gives them the call in which they stop. `reached`: they reach it.
    void agree(bool reached);

    // ---- what else happens to them
    /// Lets a worker fail by itself, if one runs.
    void fail();
    /// Lets a worker of `generation` fail because it lost its connection to a worker elsewhere.
    void peer_vanished(Generation generation);
    /// Ends all of them at once: the host is off, or the guard kills them.
    void end_all();

    /// Returns the group of which a process is left.
    [[nodiscard]] std::optional<Generation> group() const { return group_; }
    /// Returns whether none of them executes an instruction.
    [[nodiscard]] bool stand_still() const { return stopped_ || frozen_ || killed_ || is_stuck(); }
    /// Returns whether a worker runs that has got no signal.
    [[nodiscard]] bool work() const;
    [[nodiscard]] const Facts& facts() const { return facts_; }

private:
    struct Process {
        bool alive = true;
        bool failing = false;   ///< it is ending by itself
        bool signaled = false;  ///< it has got the group's signal
        bool stopping = false;  ///< it saves, and exits with 75
    };
    [[nodiscard]] bool rarely(int percent) { return world_.dice.between(1, 100 * luck_.rarity) <= percent; }
    [[nodiscard]] bool is_stuck() const { return world_.time.now() < stuck_until_; }
    [[nodiscard]] Process* process(std::size_t i) { return i < processes_.size() ? &processes_[i] : nullptr; }
    void fail_to_start(int count);
    void plan_work();
    void finish(std::size_t i);
    void stop_after_notice();
    void begin_to_fail(ExitStatus status);
    /// Calls `what` after so much work of worker `i`, unless it has ended or got a signal by then.
    void after_work(milliseconds delay, std::size_t i, std::function<void()> what);
    void terminate(std::size_t i);
    void end_later(std::size_t i, milliseconds delay, ExitStatus status);
    void end_stray_later(milliseconds delay);
    void end(std::size_t i, ExitStatus status);
    void reap_if_empty();

    int slots_;
    Luck luck_;
    World world_;
    Facts facts_;
    bool has_control_group_;
    bool stopped_ = false;
    bool frozen_ = false;

    // ---- of the latest group
    std::uint64_t starts_ = 0;  ///< groups that were started: timers of older ones do nothing
    std::optional<Generation> group_;
    std::vector<Process> processes_;  ///< by local rank: those that were started
    bool all_started_ = true;
    bool stray_ = false;
    bool stubborn_ = false;
    bool has_vanished_ = false;
    bool all_succeeded_ = false;
    bool any_preempted_ = false;
    bool stops_ = false;  ///< a notice lets them exit with 75
    bool waits_ = false;  ///< for the call in which they stop
    bool has_agreed_ = false;
    int signal_ = 0;
    bool killed_ = false;
    TimePoint stuck_until_;
};

}  // namespace ddprun::sim
