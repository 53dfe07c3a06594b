#pragma once
// Defines the events of an agent as plain values. Each comes through the EventQueue, which adds the time;
// worker_group::step() decides what follows. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/exit_codes.hpp"
#include "common/ids.hpp"
#include "common/step_times.hpp"
#include "common/system/exit_status.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

// ---- from the daemon ----

/// The daemon has accepted this node.
struct Welcomed {
    std::string run_id;
    std::string node_name;        ///< the job's name for this node; empty: it keeps its own
    std::string session;          ///< of the daemon; empty: it has none
    bool lost = false;            ///< the job has gone on without this node, whose workers must not run any more
    std::string worker_key = {};  ///< protocol::Welcome::worker_key
};
/// The job cannot start yet.
struct WaitReceived {
    std::string reason;
    bool needs_nodes = false;  ///< fewer nodes have joined than the job needs
};
/// The daemon has assigned ranks for the next generation.
struct Assigned {
    protocol::Assignment assignment;
};
/// The daemon has ordered the stop of a generation.
struct AbortReceived {
    Generation generation{};
    std::string reason;
    int signal = 0;                            ///< the signal to another node that ends the job; 0: another reason
    bool failed = false;                       ///< a worker failed; `reason` describes it
    std::chrono::milliseconds failing_for{0};  ///< since the first sign of what has led to the order; 0: not known
};
struct JobFinished {
    protocol::Verdict verdict;
};
/// Another node got a signal that is for the workers of all nodes.
struct NotifyReceived {
    Generation generation{};
    int signal = 0;
    std::uint64_t number = 0;  ///< of the notification in the job; one that is not newer than the last is repeated
    std::chrono::milliseconds ago{};  ///< since the daemon got it: not 0 for one that is repeated after a reconnect
};
/// The workers get notice of a preemption, or are to stop at a step.
struct PreemptReceived {
    protocol::Preempt notice;
};
struct NoticeReceived {
    protocol::Notice notice;
};
struct RecordsRequested {
    protocol::RequestRecords request;
};
/// The connection to the daemon broke and is being made again, or it was made again.
struct ConnectionChanged {
    std::string text;
    bool connected = false;
};
/// The daemon may count this node as lost, and start the others again: the workers must not run until it is reached.
struct LeaseEnded {
    std::string why;
    TimePoint held_until;  ///< when HoldEnded follows
};
/// The daemon was not reached for as long as workers wait for it: they end. The search for it goes on.
struct HoldEnded {
    std::string why;
    TimePoint given_up_at;  ///< when DaemonLost follows
};
/// The daemon was not reached, rejects this node, is silent, or closed the connection for good.
struct DaemonLost {
    std::string why;
    int exit_code = exit_code::kInfrastructure;  ///< kUsage: the daemon rejects this command, so a retry cannot help
    std::string remedy = {};                     ///< as of Finish
};

// ---- from the workers ----

/// Workers before `next` were started. The others follow when the events that waited meanwhile have been handled.
struct StartPaused {
    LocalRank next{};
};
/// Worker `rank` could not be started. Those before it were started, those after it are not tried.
struct SpawnFailed {
    LocalRank rank{};
    Error error;
};
/// A worker has ended.
struct WorkerExited {
    LocalRank rank{};
    ExitStatus status;
    bool by_itself = false;  ///< it had not got the group's signal, or a SIGKILL ended it that this agent did not send
    std::optional<std::uint64_t> latest_step = {};  ///< the greatest that a worker of the group has begun
};
/// The group got its signal, but for workers that are ending by themselves.
struct WorkersSpared {};
/// No process of the group is left, strays included, and all are reaped.
struct GroupReaped {
    StepTimes steps = {};
};
/// The flight record of `rank` was sent as a part of the answer to `request`; the next rank follows.
struct RecordSent {
    protocol::RequestRecords request;
    LocalRank rank{};
};

// ---- from this process ----

/// INT, TERM, HUP, QUIT, or a signal of --signals-to-handle: end with grace.
struct StopSignal {
    int signal = 0;
};
/// USR1 or USR2: the workers of all nodes get it, and the job goes on.
struct NotifySignal {
    int signal = 0;
};
/// The job's time limit is near.
struct TimeLimitNear {
    std::string why;  ///< one clause
};
/// SIGTSTP (Ctrl-Z): the workers are to stop until Continued.
struct Suspended {};
/// SIGCONT (fg).
struct Continued {};
struct GuardLost {};
/// A time that next_deadline() returned may have passed.
struct Tick {};
/// It is time to look for workers that are stuck in an operation.
struct StallCheckDue {};
struct LogFileProblem {
    std::string text;
};

using Happening =
    std::variant<Welcomed, WaitReceived, Assigned, AbortReceived, JobFinished, NotifyReceived, PreemptReceived,
                 NoticeReceived, RecordsRequested, ConnectionChanged, LeaseEnded, HoldEnded, DaemonLost, StartPaused,
                 SpawnFailed, WorkerExited, WorkersSpared, GroupReaped, RecordSent, StopSignal, NotifySignal,
                 TimeLimitNear, Suspended, Continued, GuardLost, Tick, StallCheckDue, LogFileProblem>;

/// `now` is the time at which it happened, and the only clock that step() sees.
struct Event {
    TimePoint now;
    Happening what;
};

}  // namespace ddprun::agent
