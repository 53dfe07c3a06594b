#pragma once
// Defines the control messages about flight records as plain values: reports of stuck workers, requests, and records.
// Sent only to a side that has announced (Join::records, Welcome::records) that it understands them.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.hpp"
#include "common/system/exit_status.hpp"
#include "common/system/process_state.hpp"
#include "rendezvous/protocol/flight_record.hpp"

namespace ddprun::protocol {

/// The state of one worker, as its agent sees it.
struct RankRecord {
    Rank rank{};
    std::string host;
    int pid = 0;
    std::optional<ProcessState> process = {};  ///< of `pid`; empty: its agent has not answered
    bool ended = false;                        ///< the worker itself, of which `pid` may be a child
    std::optional<ExitStatus> status = {};     ///< how it ended; empty: it has not, or its agent is yet to reap it
    std::optional<std::chrono::nanoseconds> ended_ago = {};
    /// `process` at the time when its agent sent it the signals to end (and to continue, if stopped); empty: it has
    /// not.
    std::optional<ProcessState> process_before = {};
    std::optional<std::chrono::nanoseconds> process_before_ago = {};  ///< when that was; absent from older agents
    std::optional<std::chrono::nanoseconds> stopped_for = {};         ///< at least, while `process` is kStopped
    /// The clock of that host when the flight record was read, since 1970; to show, not to compare.
    std::int64_t wall_clock_ns = 0;
    FlightRecord view;
    friend bool operator==(const RankRecord&, const RankRecord&) = default;
};

/// Returns "running", "stopped", …, or how it ended: "exited with code 0, 4.2 s ago". Empty: its agent has not
/// answered.
[[nodiscard]] std::string describe_process(const RankRecord& record);

/// A failure by a deadline counts as recent for this time.
inline constexpr std::chrono::seconds kRecentTimeout{10};

/// Agent → daemon. A worker is in one operation for longer than its node's limit. Sent once per operation; if several
/// exceed the limit together, one of them is reported.
struct Stalled {
    Generation generation{};
    Rank rank{};
    std::string group;
    std::uint64_t seq = 0;
    std::uint64_t p2p_seq = 0;  ///< 0: a collective
    std::chrono::milliseconds waited{0};
    bool timed_out = false;    ///< it has ended: it has failed by its deadline
    bool unreachable = false;  ///< it is reported because RecordedOperation::unreachable is set, however short it waits
    friend bool operator==(const Stalled&, const Stalled&) = default;
};

/// Daemon → agent. Requests a RecordReply for each worker of the node, or for that one rank.
struct RequestRecords {
    Generation generation{};
    std::uint64_t request = 0;
    std::optional<Rank> rank;
    int operations = 0;  ///< how many of the newest, besides the unfinished ones
    friend bool operator==(const RequestRecords&, const RequestRecords&) = default;
};

/// Agent → daemon, and daemon → ddpctl if that asked for it.
struct RecordReply {
    Generation generation{};
    std::uint64_t request = 0;  ///< that of RequestRecords
    bool last = false;          ///< of this node's answer
    RankRecord record;
    friend bool operator==(const RecordReply&, const RecordReply&) = default;
};

/// Daemon → agent. Asks for the user of a client of a store, whose end of the connection is on the agent's host.
struct VouchRequest {
    std::uint64_t request = 0;
    std::string client_address;  ///< numeric
    int client_port = 0;
    std::string store_address;  ///< numeric
    int store_port = 0;
    friend bool operator==(const VouchRequest&, const VouchRequest&) = default;
};

/// Agent → daemon, answers a VouchRequest.
struct Vouch {
    std::uint64_t request = 0;
    bool own_user = false;  ///< the socket there belongs to the user of the agent
    std::string owner;      ///< for the log: "a process of user 1000"; empty: there is no such socket
    friend bool operator==(const Vouch&, const Vouch&) = default;
};

/// Daemon → agent. A line about the whole job, for the user.
struct Notice {
    Generation generation{};
    std::string text;  ///< one line
    friend bool operator==(const Notice&, const Notice&) = default;
};

/// ddpctl → daemon; the first one takes the place of a Join. The next one may follow when Inspected has answered.
struct Inspect {
    int protocol = 0;
    std::optional<Rank> rank;  ///< absent: all
    int operations = 0;
    friend bool operator==(const Inspect&, const Inspect&) = default;
};

/// Daemon → ddpctl, after the RecordReplies that it asked for.
struct Inspected {
    std::string run_id;
    Generation generation{};
    int world_size = 0;               ///< 0: no workers run; `verdict` says why
    std::vector<std::string> silent;  ///< hosts of nodes that did not answer
    std::string verdict;              ///< one line
    friend bool operator==(const Inspected&, const Inspected&) = default;
};

/// ddpctl → daemon, as the first and only message of a connection: kStatus is answered by Status, the others by Answer.
struct Order {
    enum class Command {
        kStatus,   ///< describe the job
        kDrain,    ///< the node's workers are to stop, and it gets none any more
        kUndrain,  ///< the node may take part again
        kPreempt,  ///< the workers of all nodes get notice of a preemption
    };
    int protocol = 0;
    Command command = Command::kStatus;
    std::string node = {};                                    ///< its name in the job; empty for kStatus and kPreempt
    std::optional<std::chrono::milliseconds> time_left = {};  ///< of kPreempt: when the workers are stopped anyway
    friend bool operator==(const Order&, const Order&) = default;
};

/// Daemon → ddpctl.
struct Answer {
    bool refused = false;
    std::string text;  ///< the effect of the order, or the reason of the refusal; one line
    friend bool operator==(const Answer&, const Answer&) = default;
};

/// A node as `ddpctl status` shows it.
struct NodeStatus {
    std::string host;
    std::optional<NodeRank> node_rank = {};  ///< in the newest group; absent: it is no member
    int rank_base = 0;                       ///< of its workers there
    int slots = 0;
    std::string state;  ///< a few words: "running", "waiting", "lost, last heard 3.0 s ago"
    bool fine = false;  ///< it needs no attention: a long table may leave it out
    bool busy = false;  ///< it may have workers that run; those of a node that is lost by silence do not
    friend bool operator==(const NodeStatus&, const NodeStatus&) = default;
};

/// A decision of the coordinator with its reason.
struct Decision {
    std::chrono::milliseconds ago{};
    std::string text;  ///< one line
    friend bool operator==(const Decision&, const Decision&) = default;
};
/// The number of decisions that are kept, and the length of one.
inline constexpr std::size_t kMaxDecisions = 200;
inline constexpr std::size_t kMaxDecisionBytes = 2'000;

/// Daemon → ddpctl.
struct Status {
    std::string run_id;
    std::string command = {};  ///< as typed, for people; empty: no node has joined
    Generation generation{};   ///< of the newest group; 0: there was none
    std::string state;         ///< one line
    std::vector<NodeStatus> nodes;
    std::vector<Decision> decisions;  ///< the newest, oldest first
    friend bool operator==(const Status&, const Status&) = default;
};

inline constexpr int kMaxOperationsShown = 2'000;  // of one rank
/// The number for each rank when all are asked for: a verdict needs the unfinished operations and those just before.
inline constexpr int kOperationsShownOfAll = 16;

}  // namespace ddprun::protocol
