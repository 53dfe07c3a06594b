#pragma once
// Defines the actions of an agent as plain values. worker_group::step() returns them in the order in which
// Agent::perform() performs them. Pure.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "common/ids.hpp"
#include "common/system/exit_status.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

// ---- the workers ----

struct StartWorkers {
    protocol::Assignment assignment;
    friend bool operator==(const StartWorkers&, const StartWorkers&) = default;
};
/// Continues a paused start (StartPaused) with worker `next`.
struct StartMoreWorkers {
    LocalRank next{};
    friend bool operator==(const StartMoreWorkers&, const StartMoreWorkers&) = default;
};
/// Gives up a paused start: the remaining workers are never started.
struct EndStart {
    friend bool operator==(const EndStart&, const EndStart&) = default;
};
/// Signals every process of the group: the workers, their children, and strays that appear later. Workers that are
/// ending by themselves are spared, except by SIGKILL; WorkersSpared follows if there are any.
struct SignalGroup {
    int signal = 0;
    friend bool operator==(const SignalGroup&, const SignalGroup&) = default;
};
/// Sends the group's signal to the workers that were spared and still run.
struct SignalSpared {
    friend bool operator==(const SignalSpared&, const SignalSpared&) = default;
};
/// Signals the workers alone: a child of theirs that does not expect the signal would die of it.
struct NotifyWorkers {
    int signal = 0;
    friend bool operator==(const NotifyWorkers&, const NotifyWorkers&) = default;
};

/// Gives the workers notice of a preemption, and answers the daemon with StepsTaken.
struct GiveNotice {
    protocol::Preempt notice;
    friend bool operator==(const GiveNotice&, const GiveNotice&) = default;
};
/// Gives the workers the call of agree_to_stop() in which they stop.
struct SetStop {
    std::uint64_t call = 0;
    friend bool operator==(const SetStop&, const SetStop&) = default;
};
/// Stops every process of the group (SIGSTOP), or continues it.
struct SuspendGroup {
    friend bool operator==(const SuspendGroup&, const SuspendGroup&) = default;
};
struct ContinueGroup {
    friend bool operator==(const ContinueGroup&, const ContinueGroup&) = default;
};
/// Has the kernel stop the control group of the workers, if there is one, or continue it: what forks at this moment
/// escapes a signal, and another process may send SIGCONT.
struct FreezeGroup {
    friend bool operator==(const FreezeGroup&, const FreezeGroup&) = default;
};
struct ThawGroup {
    friend bool operator==(const ThawGroup&, const ThawGroup&) = default;
};

// ---- the daemon ----

/// Sends Notify, so that the workers of the other nodes get the signal. It is not repeated on a later connection: a
/// notification that arrives late is worse than none.
struct ForwardSignal {
    Generation generation{};
    int signal = 0;
    bool known = false;  ///< another node has forwarded it: only the daemon lacks that this node got it, too
    friend bool operator==(const ForwardSignal&, const ForwardSignal&) = default;
};

/// Drops the connection to the daemon for good: nothing more is sent, and the daemon counts this node as lost when its
/// time to reconnect is over.
struct DropConnection {
    friend bool operator==(const DropConnection&, const DropConnection&) = default;
};
struct SendMessage {
    protocol::AgentMessage message;
    friend bool operator==(const SendMessage&, const SendMessage&) = default;
};
/// Sends WorkerFailed with the evidence (pid, stderr, error file) that only this node has.
struct ReportFailure {
    Generation generation{};
    LocalRank rank{};
    ExitStatus status;
    std::string why;  ///< why the worker could not be started; empty: it was
    friend bool operator==(const ReportFailure&, const ReportFailure&) = default;
};
/// Sends Stalled if an operation of that worker, which has ended, failed by its deadline.
struct ReportTimeouts {
    LocalRank rank{};
    friend bool operator==(const ReportTimeouts&, const ReportTimeouts&) = default;
};
/// Sends Stalled for each of these workers that has been in one operation for too long.
struct CheckForStalls {
    std::set<LocalRank> running;
    friend bool operator==(const CheckForStalls&, const CheckForStalls&) = default;
};
/// Sends the flight record of one worker; RecordSent follows unless it is the last one of the answer.
struct SendRecord {
    protocol::RequestRecords request;
    LocalRank rank{};
    bool last = false;
    friend bool operator==(const SendRecord&, const SendRecord&) = default;
};

// ---- the user ----

/// Uses the names that the job has for itself, for this run of it and for this node.
struct AdoptNames {
    std::string run_id;
    std::string node_name;        ///< empty: this node keeps its name
    std::string session;          ///< of the daemon, by which the workers' processes are recognized; empty: it has none
    std::string worker_key = {};  ///< protocol::Welcome::worker_key
    friend bool operator==(const AdoptNames&, const AdoptNames&) = default;
};
/// Prints why the job cannot start yet.
struct PrintWait {
    std::string reason;
    bool needs_nodes = false;  ///< fewer nodes have joined than the job needs
    friend bool operator==(const PrintWait&, const PrintWait&) = default;
};
/// Prints the processes that a stop by a signal waits for, in place of its reason.
struct PrintStopWait {
    std::string text;
    friend bool operator==(const PrintStopWait&, const PrintStopWait&) = default;
};
/// Prints a line with LOGLEVEL=debug.
struct PrintDetail {
    std::string text;
    friend bool operator==(const PrintDetail&, const PrintDetail&) = default;
};
/// Prints that the workers have notice of a preemption.
struct PrintPreemption {
    std::string text;
    friend bool operator==(const PrintPreemption&, const PrintPreemption&) = default;
};
/// Prints a line about the whole job.
struct PrintNotice {
    std::string text;
    friend bool operator==(const PrintNotice&, const PrintNotice&) = default;
};
struct PrintConnection {
    std::string text;
    friend bool operator==(const PrintConnection&, const PrintConnection&) = default;
};
struct PrintLogFileProblem {
    std::string text;
    friend bool operator==(const PrintLogFileProblem&, const PrintLogFileProblem&) = default;
};

/// Ends the agent.
struct Finish {
    int exit_code = 0;
    std::string why;  ///< one line for the user; empty when the verdict contains it
    std::optional<protocol::Verdict> verdict;
    std::string remedy = {};   ///< what to do about `why`, a sentence without its full stop; empty: `why` contains it
    bool interrupted = false;  ///< a signal to this node is the cause
    std::string failure = {};  ///< of a worker of this node, before that signal, one clause; empty: there was none
    bool processes_left = false;  ///< processes survive SIGKILL: name them and stop waiting for them
    friend bool operator==(const Finish&, const Finish&) = default;
};

using Action = std::variant<StartWorkers, StartMoreWorkers, EndStart, SignalGroup, SignalSpared, NotifyWorkers,
                            GiveNotice, SetStop, SuspendGroup, ContinueGroup, FreezeGroup, ThawGroup, ForwardSignal,
                            DropConnection, SendMessage, ReportFailure, ReportTimeouts, CheckForStalls, SendRecord,
                            AdoptNames, PrintWait, PrintStopWait, PrintDetail, PrintNotice, PrintPreemption,
                            PrintConnection, PrintLogFileProblem, Finish>;

}  // namespace ddprun::agent
