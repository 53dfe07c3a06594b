#pragma once
// State: what the coordinator knows. Plain values in ordered containers: the same events give the same state
// everywhere. Owned by the daemon's one loop, changed by step() alone (coordinator.hpp). docs/design/002-coordinator.md
// has the table of states and events.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "rendezvous/coordinator/config.hpp"
#include "rendezvous/coordinator/node_table.hpp"
#include "rendezvous/diagnosis/diagnosis.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::coordinator {

using diagnosis::Diagnosis;

/// The phase of the job.
enum class Phase {
    kGathering,  ///< no worker group; waiting for nodes
    kOpening,    ///< enough nodes; waiting for the store of the next generation
    kRunning,    ///< a worker group runs
    kStopping,   ///< its members were sent Abort; waiting until none has a process left
    kFinished,   ///< the verdict was given
};
[[nodiscard]] const char* to_string(Phase phase);

/// What the first node has asked for, with which every later node must agree.
struct JobShape {
    int min_nodes = 1;
    int max_nodes = 1;
    ScaleUp scale_up = ScaleUp::kImmediate;
    Launch launch = {};
    bool named = false;  ///< by --rdzv-id: nodes that name it too may run other commands
    friend bool operator==(const JobShape&, const JobShape&) = default;
};

[[nodiscard]] JobShape shape_of(const Join& join);

/// The restarts of one role. Only failures of its workers spend them.
struct RestartBudget {
    int max_restarts = 0;  ///< as its first node has asked for; every later one must agree
    int spent = 0;
    [[nodiscard]] bool is_left() const { return spent < max_restarts; }
    friend bool operator==(const RestartBudget&, const RestartBudget&) = default;
};

/// Returns "2" or "2:3", as after --nnodes.
[[nodiscard]] std::string nnodes(const JobShape& shape);

/// What the job remembers of a host, whose ddpruns may come and go.
struct Host {
    std::optional<NodeRank> rank;  ///< that its node had last; it gets it again if that is free
    int strikes = 0;               ///< its losses and the failures of its workers; 0 again after an hour without one
    TimePoint struck_at;           ///< by the newest one
    std::map<std::string, TimePoint> cut_from = {};  ///< hosts at the other ends of its cut links, and when each was
                                                     ///< last found; forgotten like strikes
    TimePoint cut_off_until;     ///< left out until then because of them, unless the job needs the node
    int early_losses = 0;        ///< groups that its loss has ended soon after their start, since one with it lasted
    std::string set_aside = {};  ///< why its node gets no workers, as a clause; empty: it may
};

/// A node of the newest worker group.
struct Member {
    Assignment assignment;   ///< as it was sent, to send it again after a reconnect
    bool succeeded = false;  ///< all its workers exited well; it is parked until the others have ended
    bool preempted = false;  ///< some of them because of the notice of preemption
    TimePoint succeeded_at;
    std::optional<std::uint64_t> steps_taken = {};  ///< StepsTaken::calls
};

/// A signal for the workers that nodes have forwarded.
struct Notification {
    Notify message;  ///< as it was sent to the other nodes
    TimePoint at;
    std::set<NodeId> origins;  ///< the nodes that got the signal: their workers have it from them
};

/// A worker that ended by itself with a failure, the culprit or another one.
struct FailedWorker {
    ExitStatus status;
    OomKill oom = OomKill::kUnknown;
    bool victim = false;  ///< another rank had failed before it
};

/// The notice of preemption that the job got. It holds for every later group, too.
struct Preemption {
    Preempt message;  ///< without the generation and the call at which to stop
    std::optional<TimePoint> deadline = {};
    TimePoint since;
    std::optional<TimePoint> overdue_since = {};  ///< of the running group, whose diagnosis is awaited
};

/// The newest worker group. A member is missing from State::nodes if it was lost, or left, without a process.
struct Group {
    Generation generation{};
    std::map<NodeId, Member> members;
    TimePoint started_at = {};
    TimePoint stopping_since = {};       ///< meaningless while it runs
    std::map<Rank, TimePoint> finished;  ///< workers that exited with 0 before others of their node
    bool is_ending = false;              ///< a worker has exited with 0: the job is about to end
    std::map<Rank, FailedWorker> failed = {};
    std::map<std::string, bool> lost = {};  ///< hosts of members that were lost; true: the network has cut them off
    std::set<std::string> left_roles = {};  ///< roles of members that got a signal to end, and have left
    std::vector<Notification> notifications = {};           ///< the newest, oldest first
    std::optional<TimePoint> diagnosis_pending_since = {};  ///< set: Diagnosed will follow
    Diagnosis diagnosis = {};                               ///< the newest
    TimePoint diagnosed_at = {};
    std::uint64_t stop_at = 0;  ///< Preempt::stop_at
};

/// The reason why a worker group is being stopped.
struct Cause {
    std::string reason;                    ///< one clause: "node n2 was lost: connection closed"
    std::optional<FailureReport> failure;  ///< a worker failed; spends a restart or ends the job
    NodeId failed_node;                    ///< the node of that worker
    TimePoint failed_at;                   ///< when the first failure was reported, also if another one explains it
    Duration failed_after{};               ///< how long after the start of the group that was
    TimePoint failure_began;               ///< of `failure`
    std::optional<TimePoint> began = {};   ///< the first sign of the reason; empty: there was none before the reason
    std::optional<Verdict> verdict;        ///< the job ends with this as soon as nothing runs any more
    int signal = 0;                        ///< the signal to a node that ends the job; 0: there was none
    std::vector<std::string> lost = {};    ///< hosts whose loss is the reason
    std::string why_lost = {};             ///< how it was noticed; empty: not in the same way for all of them
};

/// The last node that got a signal to end during the newest worker group, or during the wait before it.
struct Departure {
    std::string host;
    int signal = 0;
    std::string failure = {};  ///< of a worker, which this node's signal has followed at once; empty: there was none
};

/// How the number of the job's nodes has grown.
struct Growth {
    int first_size = 0;  ///< nodes of the first group
    int restarts = 0;    ///< in a row for the sake of more nodes; a group that lasts long ends the row
};

/// The tries to open a store for the next group.
struct StoreRetry {
    TimePoint since;
    TimePoint next;
};

/// The wait for nodes that precedes a worker group.
struct Round {
    TimePoint since;
    std::optional<TimePoint> last_call_ends;    ///< set while MIN nodes are present
    std::optional<TimePoint> newest_join = {};  ///< when a node has joined or reconnected last
    /// Set: all nodes were lost, and those that may come back are waited for. When the log has named them last.
    std::optional<TimePoint> return_reported = {};
    TimePoint opens_at =
        {};  ///< not earlier, even if all nodes are here: after early ends, or while workers may remain
};

/// The kind of the reason why nodes wait. Nodes get a reason of another kind at once.
enum class WaitKind {
    kNone,           ///< none was sent yet
    kTooFew,         ///< fewer than MIN nodes are here
    kReplacement,    ///< the same, and another node is to take the place of a lost one
    kLastCall,       ///< more than MIN may come
    kPause,          ///< between restarts
    kStopping,       ///< the workers are being stopped
    kSpare,          ///< the job runs without this node
    kSpareOfEnding,  ///< the same, and it is about to end
};

/// The reason for all waiting nodes.
struct Explanation {
    WaitKind kind = WaitKind::kNone;
    Waiting message;
    TimePoint sent_at;  ///< to all of them at once
};

/// Before these times a tick need not look at all nodes. Events that may make a node due earlier reset them (step()).
struct Due {
    TimePoint loss;         ///< no node has been silent, or disconnected, for too long
    TimePoint explanation;  ///< no waiting node needs its reason again
};

/// It has more than 15 members because each is a fact of its own of the table in docs/design/002-coordinator.md.
struct State {
    explicit State(Config configuration) : config(std::move(configuration)) {}

    Config config;
    std::optional<JobShape> shape;  ///< empty until the first node has joined
    Phase phase = Phase::kGathering;
    NodeTable nodes;
    Generation generation{0};  ///< the newest with an OpenStore; the first is 1
    Group group;               ///< empty before the first
    int groups_started = 0;
    std::map<std::string, RestartBudget> roles;  ///< of all nodes that were admitted, also of those that have left
    std::map<std::string, Host> hosts;           ///< by the display name of their node
    int early_outages = 0;  ///< newest groups in a row that outages have ended soon after their start
    int early_ends = 0;     ///< newest groups in a row that a failure or a loss has ended soon after their start
    Growth growth;
    std::optional<StoreRetry> store_retry;     ///< of kOpening: no store could be opened so far
    std::uint64_t last_notification = 0;       ///< the number of the newest Notification of all groups
    std::optional<std::uint64_t> latest_step;  ///< the greatest that a worker of the job has begun; empty: not known
    Cause cause;                               ///< of kStopping; kept afterwards to explain the wait for the next group
    std::optional<Departure> departure;
    std::optional<Preemption> preemption;
    std::optional<Verdict> verdict;  ///< of kFinished
    TimePoint finished_at;           ///< of kFinished

    TimePoint now;  ///< of the newest event
    Round round;
    TimePoint heartbeat_due;
    std::optional<TimePoint> all_silent_at;  ///< when no node was heard any more, the last time; empty: never
    std::uint64_t heartbeats = 0;            ///< the number of the newest one, the same for all nodes
    std::deque<TimePoint> heartbeats_sent;   ///< when the newest ones were sent, oldest first
    Explanation explanation;
    Due due;
    std::optional<TimePoint> alone_since;  ///< since when no node is connected, as the ticks saw it; empty: one is
    bool starter_ended = false;            ///< the program that started the daemon has ended
    std::string no_more_nodes;             ///< why no further node will join; empty: one may
    bool daemon_ends = false;              ///< EndDaemon was given
};

/// Returns the restarts that all roles together have spent.
[[nodiscard]] int restarts_spent(const State& state);
/// Returns " of role server", to follow a number of restarts; empty: the job has one role.
[[nodiscard]] std::string of_role(const State& state, const std::string& role);

}  // namespace ddprun::coordinator
