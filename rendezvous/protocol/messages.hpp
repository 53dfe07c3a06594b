#pragma once
// Defines the control messages between agents and the daemon as plain values. Pure: no sockets, no JSON (json.hpp). A
// new member has a line here, in field_table.hpp and in docs/control-messages.md. One agent represents one node. A
// receiver ignores a message of another generation than the current one.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/ids.hpp"
#include "common/scale_up.hpp"
#include "common/system/exit_status.hpp"
#include "rendezvous/protocol/inspection.hpp"

namespace ddprun::protocol {

/// Raised whenever a message changes its meaning; both sides must agree.
inline constexpr int kProtocolVersion = 9;

/// Identifies an agent: ddprun::random_id(), drawn once per agent process.
using NodeId = std::string;

/// The answer to the question whether the kernel killed a worker because memory had run out.
enum class OomKill {
    kUnknown,  ///< its node cannot find out, or it was neither a SIGKILL nor a script's exit code for one
    kNo,       ///< the SIGKILL came from a process
    kMaybe,    ///< the kernel killed some process at that time
    kYes,
};

/// The failure of one worker; the culprit of a verdict.
struct FailureReport {
    Rank rank{};
    LocalRank local_rank{};
    NodeRank node_rank{};
    std::string host;  ///< the agent's node name
    int pid = 0;
    ExitStatus status;    ///< of the worker; one that was never started (pid 0) has exited with 126 or 127, or with 69
                          ///< or 70 when the cause is not its program
    std::string message;  ///< from the worker's error file, or why it could not be started; may be empty
    std::vector<std::string> last_lines;       ///< the end of its stderr, oldest first
    std::string log_file = {};                 ///< holds all of its stderr, on `host`; empty: no files were asked for
    std::chrono::milliseconds failing_for{0};  ///< how long before this report its first sign of failure (a traceback)
                                               ///< was seen; 0: there was none before it ended
    std::string activity = {};                 ///< its last activity by its flight record; empty: it has written none
    OomKill oom = OomKill::kUnknown;           ///< of one that a SIGKILL ended
    bool peer_failed = false;                  ///< its flight record shows that it failed after another rank
    std::string program = {};                  ///< its name; empty: its node runs one program
    std::string role = {};                     ///< of the worker; empty: the job has one role, or it is not known yet
    friend bool operator==(const FailureReport&, const FailureReport&) = default;
};

/// Returns "was killed by SIGKILL by the kernel's out-of-memory killer" or "exited with code 3".
[[nodiscard]] std::string describe_end(const FailureReport& failure);
/// Returns the same as a participle: "killed by SIGKILL by the kernel's out-of-memory killer", "exited with code 3"
[[nodiscard]] std::string end_participle(const FailureReport& failure);

/// Workers that failed in the same way, beside the culprit.
struct FailedRanks {
    std::vector<RankRun> ranks;  ///< of stride 1
    ExitStatus status;
    OomKill oom = OomKill::kUnknown;
    bool victims = false;  ///< another rank had failed before them, as FailureReport::peer_failed or their stderr shows
    friend bool operator==(const FailedRanks&, const FailedRanks&) = default;
};
inline constexpr std::size_t kMaxFailedKinds = 16;
inline constexpr std::size_t kMaxFailedRuns = 256;

/// The kind of end of a job.
enum class Outcome {
    kSucceeded,       ///< every worker exited with 0
    kWorkerFailed,    ///< a worker failed and no restart was left; `culprit` is set
    kStopped,         ///< ended by a signal to a node (drain)
    kPreempted,       ///< the workers stopped at a notice of preemption, or did not in time
    kInfrastructure,  ///< too few nodes, a node lost, a port that could not be opened, …
};

/// The result of a job, the same on every node.
struct Verdict {
    Outcome outcome = Outcome::kSucceeded;
    int exit_code = 0;   ///< of every ddprun of the job
    std::string reason;  ///< one sentence for people
    std::optional<FailureReport> culprit;
    int restarts = 0;             ///< of all roles together; joining and lost nodes use none
    std::string diagnosis = {};   ///< which rank kept which others waiting, if the culprit failed because of that; or
                                  ///< the culprit's operation and the ranks that waited for it; one line, may be empty
    bool names_message = false;   ///< `reason` contains all of culprit->message
    bool names_activity = false;  ///< `diagnosis` contains culprit->activity
    std::string hint = {};        ///< what to do about that, one line, may be empty
    bool first_victim = false;  ///< `culprit` holds the first victim; the culprits are the ranks that `diagnosis` names
    std::vector<FailedRanks> also_failed = {};  ///< ranks that ended by themselves, not because ddprun stopped them;
                                                ///< at most kMaxFailedKinds, each of at most kMaxFailedRuns
    friend bool operator==(const Verdict&, const Verdict&) = default;
};

// ---- agent → daemon ----

/// The command that a node runs, and the user that started it.
struct Launch {
    std::string command;             ///< program and arguments as typed, for people: cut, values of secrets masked
    std::uint64_t command_hash = 0;  ///< of the whole command as typed
    std::string user;                ///< name, or the number if it has none
    std::uint64_t uid = 0;
    friend bool operator==(const Launch&, const Launch&) = default;
};

/// A program of a node. Its workers have consecutive local ranks, in the order of Join::programs.
struct Program {
    std::string role = "default";  ///< of its workers; several programs may have one role
    int slots = 1;                 ///< its workers on this node
    int max_restarts = 0;          ///< how many failures of workers of this role the job answers by a restart
    friend bool operator==(const Program&, const Program&) = default;
};

/// First message of a connection. Nodes of one job must agree on min_nodes, max_nodes, scale_up, the max_restarts of
/// each role and, unless all name the job by `run_id`, on their command. All of them belong to one user.
struct Join {
    int protocol = kProtocolVersion;
    NodeId node;
    std::string host;  ///< shown to people; unique per node where possible
    int pid = 0;
    std::vector<Program> programs = {Program()};
    int min_nodes = 1;
    int max_nodes = 1;
    ScaleUp scale_up = ScaleUp::kImmediate;
    std::chrono::milliseconds stop_grace{30'000};  ///< the longest that it gives its workers to end, once stopped
    Launch launch = {};
    bool spare = false;                       ///< it may wait beside a job that has all its nodes
    std::optional<std::string> run_id;        ///< absent: any job that this daemon serves
    std::optional<int> node_rank;             ///< the requested one (--node-rank, SLURM_NODEID)
    std::optional<std::string> session = {};  ///< of an earlier Welcome; only the same daemon can continue it
    bool records = false;                     ///< it understands RequestRecords and Notice
    friend bool operator==(const Join&, const Join&) = default;
};

/// Returns the number of workers of a node.
[[nodiscard]] int slots_of(const Join& join);
/// Returns the program of the worker with this local rank, which the node has.
[[nodiscard]] const Program& program_of(const Join& join, LocalRank rank);

/// Either direction: shows that the sender is alive, and how fresh what it has heard of the receiver is. A side knows
/// by its own clock when it sent the number that comes back.
struct Heartbeat {
    std::uint64_t number = 0;  ///< of the sender's heartbeats, from 1; those of an agent go on after a reconnect
    std::uint64_t heard = 0;   ///< the newest number of the receiver's that the sender has got; 0: none
    friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

/// A worker of `generation` failed. The agent stops its other workers without an Abort. Sent again for each worker that
/// failed before it was stopped: one of those may be the cause of the first failure.
struct WorkerFailed {
    Generation generation{};
    FailureReport failure;
    friend bool operator==(const WorkerFailed&, const WorkerFailed&) = default;
};

/// No process of this node's worker group of `generation` is left (after Abort, a failure or a drain).
struct GroupStopped {
    Generation generation{};
    std::optional<std::uint64_t> latest_step = {};  ///< the greatest that a worker of this node has begun, in any group
    friend bool operator==(const GroupStopped&, const GroupStopped&) = default;
};

/// All workers of this node exited with 0, or with the code for "preempted" after a notice.
struct GroupSucceeded {
    Generation generation{};
    bool preempted = false;                         ///< at least one did the latter
    std::optional<std::uint64_t> latest_step = {};  ///< as of GroupStopped
    friend bool operator==(const GroupSucceeded&, const GroupSucceeded&) = default;
};

/// One worker of several on this node exited well, as in GroupSucceeded, while others go on. Not sent for the last one:
/// see GroupSucceeded.
struct WorkerFinished {
    Generation generation{};
    Rank rank{};
    friend bool operator==(const WorkerFinished&, const WorkerFinished&) = default;
};

/// Either direction: the workers of `generation` on every node are to get `signal`, and go on: a scheduler announces a
/// preemption, or a user asks for a checkpoint. The sender's own workers have it already.
struct Notify {
    Generation generation{};
    int signal = 0;            ///< SIGUSR1 or SIGUSR2
    std::uint64_t number = 0;  ///< of the notification in the job, from 1; the daemon draws it, and 0 is an agent's
    std::chrono::milliseconds ago{};  ///< since the daemon got it, of one that it repeats
    bool known = false;               ///< an agent's: another node has forwarded the same one to it
    friend bool operator==(const Notify&, const Notify&) = default;
};

/// This node got a notice of preemption: the workers of all nodes are to stop at one step. The first of a job
/// counts, then an earlier deadline, and another kind than a signal.
struct PreemptionNotice {
    std::string reason;      ///< one clause, or the name of the signal
    bool by_signal = false;  ///< a signal that goes to the workers on its own way (Notify)
    std::optional<std::chrono::milliseconds> time_left = {};  ///< until the workers are stopped anyway; absent: unknown
    friend bool operator==(const PreemptionNotice&, const PreemptionNotice&) = default;
};

/// Answers Preempt: every worker of this node sees the notice in the call of agree_to_stop()
/// after `calls` at the latest.
struct StepsTaken {
    Generation generation{};
    std::uint64_t calls = 0;  ///< the most that a worker of this node had made when it got the notice
    friend bool operator==(const StepsTaken&, const StepsTaken&) = default;
};

/// This node got a signal to end and takes no further part. Its workers are being stopped; GroupStopped follows.
struct Leave {
    int signal = 0;
    friend bool operator==(const Leave&, const Leave&) = default;
};

using AgentMessage = std::variant<Join, Heartbeat, WorkerFailed, WorkerFinished, GroupStopped, GroupSucceeded, Leave,
                                  Notify, PreemptionNotice, StepsTaken, Stalled, RecordReply, Inspect, Order, Vouch>;

// ---- daemon → agent ----

/// After Welcome::hold an agent goes on looking for a silent daemon until the silence has lasted this many holds.
inline constexpr int kHoldsOfSearch = 3;

/// Answers a Join.
struct Welcome {
    std::string run_id;
    std::chrono::milliseconds heartbeat_interval{500};  ///< each side sends a message at least this often
    std::chrono::milliseconds lost_after{3000};         ///< silence after which a side counts as lost
    std::chrono::milliseconds reconnect_grace{750};     ///< after the end of a connection that one side has closed
    std::chrono::milliseconds hold{30'000};             ///< silence after which an agent ends its workers
    std::string node_name = {};  ///< of this node in the job: its host's name, with "#2" … if another node has that one
    std::string session = {};    ///< drawn by the daemon when it began; empty: an older daemon
    bool records = false;        ///< it understands Stalled and RecordReply
    bool lost = false;           ///< the node has counted as lost: its workers must end at once. An Abort follows
    std::string worker_key = {};  ///< random, drawn as the session; the secrets of worker groups are derived from it
                                  ///< (docs/design/029). Empty: other hosts are connected without TLS
    friend bool operator==(const Welcome&, const Welcome&) = default;
};

/// The reason why nothing starts yet. Sent when it changes (in a job of more than 64 nodes: when its kind changes), and
/// every few seconds while it lasts.
struct Waiting {
    std::vector<std::string> present;  ///< host names, in natural order; empty: they are more than 64
    int min_nodes = 1;
    int max_nodes = 1;
    std::chrono::milliseconds waited{0};
    std::string reason;  ///< "2 of 4 nodes are here", "spare: the job runs with 4 of 4 nodes", …
    friend bool operator==(const Waiting&, const Waiting&) = default;
};

/// The place of a program's workers among those of its role.
struct RoleRanks {
    int base = 0;        ///< ROLE_RANK of its first worker on this node
    int world_size = 1;  ///< workers of the role in the job
    friend bool operator==(const RoleRanks&, const RoleRanks&) = default;
};

/// The restart that a worker's failure has led to.
struct Restart {
    int number = 1;         ///< counts from 1 for each role
    int max = 1;            ///< max_restarts of the role
    std::string role = {};  ///< of the worker that failed; empty: the job has one role
    friend bool operator==(const Restart&, const Restart&) = default;
};

/// Start the workers of `generation`.
struct Assignment {
    Generation generation{};
    NodeRank node_rank{};
    int node_count = 1;
    int rank_base = 0;  ///< RANK of this node's first worker
    int world_size = 1;
    std::string master_addr;  ///< numeric
    int master_port = 0;
    int restart_count = 0;                ///< the same on all nodes, +1 for every new worker group
    int max_restarts = 0;                 ///< of all roles together
    std::string reason;                   ///< why the group before was stopped, one line for people; empty at first
    std::optional<Restart> restart = {};  ///< absent: the first group, or the nodes have changed
    std::vector<RoleRanks> program_roles = {RoleRanks()};  ///< of each program of this node
    std::optional<std::uint64_t> steps_before = {};        ///< the greatest step that an earlier group had begun
    friend bool operator==(const Assignment&, const Assignment&) = default;
};

/// Stop the workers of `generation` and answer with GroupStopped.
struct Abort {
    Generation generation{};
    std::string reason;   ///< one line for people
    int signal = 0;       ///< the signal to a node that ends the job, for the workers of all nodes; 0: another reason
    bool failed = false;  ///< a worker failed, and `reason` describes it
    std::chrono::milliseconds failing_for{0};  ///< since the first sign of what has led to the order; 0: not known
    friend bool operator==(const Abort&, const Abort&) = default;
};

/// Gives the workers of `generation` notice of a preemption. Sent to each of its nodes, and again with `stop_at` when
/// all have answered.
struct Preempt {
    Generation generation{};
    std::string reason;         ///< one clause: "node n1 got SIGUSR1"
    bool by_signal = false;     ///< as of PreemptionNotice
    std::uint64_t stop_at = 0;  ///< the call of agree_to_stop() in which all ranks stop; 0: not agreed yet
    std::optional<std::chrono::milliseconds> time_left = {};  ///< as of PreemptionNotice
    friend bool operator==(const Preempt&, const Preempt&) = default;
};

/// The job is over. The agent exits with verdict.exit_code.
struct Finished {
    Verdict verdict;
    friend bool operator==(const Finished&, const Finished&) = default;
};

/// Answers a Join that cannot be served: other job, other options, other protocol version, job full or over.
struct Rejected {
    std::string reason;
    bool try_again = false;  ///< an older connection of this node, or this daemon whose job is over, will end soon; or
                             ///< a node may be lost, whose place this one could take
    std::chrono::milliseconds try_for{0};  ///< with try_again: it is in vain after this time; 0: no limit
    friend bool operator==(const Rejected&, const Rejected&) = default;
};

using DaemonMessage = std::variant<Welcome, Heartbeat, Waiting, Assignment, Abort, Finished, Rejected, RequestRecords,
                                   Notice, Notify, Preempt, RecordReply, Inspected, Answer, Status, VouchRequest>;

}  // namespace ddprun::protocol
