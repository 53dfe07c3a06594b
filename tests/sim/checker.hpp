#pragma once
// Checker: the invariants of the coordinator, checked after every step.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/daemon/decisions.hpp"
#include "tests/sim/timeline.hpp"

namespace ddprun::sim {

/// The actual state of the nodes; the coordinator only gets messages about it.
struct TruthOfNodes {
    std::map<protocol::NodeId, Generation> processes;  ///< the group that a node has processes of
    std::set<protocol::NodeId> frozen;                 ///< nodes whose processes stand still
    std::map<protocol::NodeId, Generation> succeeded;  ///< the newest group whose workers all ended well there
    std::map<protocol::NodeId, Generation> preempted;  ///< the newest of these in which one exited with 75
    std::set<protocol::NodeId> looking;  ///< nodes that have the daemon, or look for it and have not given it up soon
    int failures = 0;                    ///< workers that failed by themselves
};

/// The notices of preemption that the daemon has got, with the event that is being handled.
struct TruthOfNotices {
    bool by_signal = false;
    bool ends_job = false;              ///< an order, or the time limit: nothing is started any more
    std::optional<TimePoint> deadline;  ///< the earliest
};

/// The actual state of the cluster.
struct Truth {
    std::function<TruthOfNodes()> of_nodes;  ///< takes time where there are many
    int signals = 0;                         ///< nodes that were signaled to stop, and the daemon
    int connected = 0;                       ///< nodes with a connection
    bool stop_requested = false;             ///< the daemon was signaled to stop
    TruthOfNotices notices = {};
};

class Checker {
public:
    void after_step(const coordinator::State& state, const std::vector<daemon::DaemonAction>& actions,
                    const Truth& truth);
    void store_failed(Generation generation) { failed_store_ = generation; }
    /// Returns the first invariant that did not hold, or an empty text.
    [[nodiscard]] const std::string& broken() const { return broken_; }
    [[nodiscard]] const std::optional<protocol::Verdict>& verdict() const { return verdict_; }
    [[nodiscard]] int groups() const { return groups_; }
    [[nodiscard]] int pauses() const { return pauses_; }
    /// Returns the most groups that have started within a minute.
    [[nodiscard]] int most_starts() const { return most_starts_; }
    /// Returns the exit code of the daemon, once it has ended.
    [[nodiscard]] const std::optional<int>& daemon_end() const { return daemon_end_; }

private:
    void expect(bool holds, const std::string& what);
    void note_losses(const coordinator::State& state);
    void note_reports(const coordinator::State& state);
    void check_stores(const std::vector<daemon::DaemonAction>& actions);
    void check_group(const coordinator::State& state, const std::vector<daemon::DaemonAction>& actions,
                     const Truth& truth);
    void check_ranks(const coordinator::State& state, const std::map<protocol::NodeId, protocol::Assignment>& group);
    void check_fence(const std::map<protocol::NodeId, protocol::Assignment>& group, Generation generation,
                     const TruthOfNodes& truth);
    void check_rate_of_starts(TimePoint now);
    void check_budget(const coordinator::State& state, const Truth& truth);
    void check_pauses(const coordinator::State& state, const std::vector<daemon::DaemonAction>& actions);
    void note_end_of_group(const coordinator::State& state);
    void check_notices(const coordinator::State& state, const std::vector<daemon::DaemonAction>& actions,
                       const TruthOfNotices& notices);
    void check_verdict(const coordinator::State& state, const Truth& truth);
    void check_success(const TruthOfNodes& nodes);
    void check_preemption(const protocol::Verdict& verdict, TimePoint now, const TruthOfNotices& notices,
                          const TruthOfNodes& nodes);
    void check_daemon_end(const coordinator::State& state, const std::vector<daemon::DaemonAction>& actions,
                          const Truth& truth);
    void check_silence(const coordinator::State& state);
    void check_end_without_nodes(const coordinator::State& state, const TruthOfNodes& truth);
    void check_waiting_is_explained(const coordinator::State& state, const std::vector<daemon::DaemonAction>& actions);
    void check_waiting_makes_sense(const coordinator::State& state);
    [[nodiscard]] std::string role_of(Rank rank) const;

    std::string broken_;
    int steps_ = 0;
    std::optional<protocol::Verdict> verdict_;
    TimePoint verdict_at_;
    std::optional<int> daemon_end_;
    TimePoint starter_seen_{};                 ///< the newest event before the end of the daemon's starter
    std::optional<TimePoint> last_connected_;  ///< when a node was connected last; the first event, if none was
    std::optional<Generation> open_store_;
    std::optional<Generation> failed_store_;  ///< that could not be opened
    Generation newest_store_{0};
    Generation newest_group_{0};
    int groups_ = 0;
    bool restart_forbidden_ = false;  ///< a worker has exited with 93
    int groups_timed_ = 0;            ///< the two times below are of the newest of so many
    TimePoint group_began_;
    std::optional<TimePoint> group_failed_at_;  ///< when its first failure was reported
    int restarts_seen_ = 0;                     ///< restarts_spent() after the step before
    int early_ends_ = 0;                        ///< of the newest groups in a row
    std::optional<TimePoint> stopping_since_;
    std::optional<TimePoint> stopping_since_before_;  ///< before the newest step
    TimePoint may_open_at_;                           ///< the next store, after a pause between restarts
    std::deque<TimePoint> starts_;                    ///< of groups within the last minute
    int most_starts_ = 0;
    int pauses_ = 0;                               ///< starts that had to wait for the end of one
    std::map<std::string, int> restarts_counted_;  ///< of each role, as in the newest Assignment that counts one
    std::map<std::string, int> restarts_spent_;    ///< of each role, after the step before
    /// A node of the newest group.
    struct MemberFacts {
        int rank_base = 0;
        std::vector<protocol::Program> programs;
    };
    std::map<protocol::NodeId, MemberFacts> members_;
    std::map<protocol::NodeId, int> previous_ranks_;
    std::set<std::pair<protocol::NodeId, Generation>> lost_with_;  ///< nodes that were lost while they had processes
    std::map<protocol::NodeId, TimePoint> explained_at_;
    TimePoint explanations_checked_;
    TimePoint silence_checked_;
    TimePoint previous_now_;
    TimePoint awake_since_;  ///< since when the coordinator has had events without a pause
};

}  // namespace ddprun::sim
