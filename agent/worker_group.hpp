#pragma once
// The decisions of one node: when its workers start, stop and are killed, what the daemon is told, when the agent ends.
// Pure: no clock, process, socket or log. The table is in docs/design/003-worker-group.md; the code has the same rows.

#include <chrono>
#include <csignal>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/exit_codes.hpp"
#include "common/exit_status.hpp"
#include "common/ids.hpp"
#include "rendezvous/coordinator/messages.hpp"

namespace ddprun::agent {

/// A second INT or TERM this long after the first means "now"; sooner it is the same wish, told by shell and scheduler.
inline constexpr std::chrono::milliseconds kSecondSignalAfter{500};
/// How long SIGKILL may take. A process that sleeps in the kernel (state D) survives it.
inline constexpr std::chrono::seconds kUnkillableAfter{60};

// ---- events: what happened ----

struct Assigned {
    coordinator::Assignment assignment;
};
struct WorkerExited {
    LocalRank rank{};
    ExitStatus status;
    bool unasked = false;  ///< it had not been told to, or a SIGKILL ended it that is not ours
};
/// Worker `rank` could not be started, or was not any more because the group is being stopped; those before it were,
/// those after it were not tried.
struct SpawnFailed {
    LocalRank rank{};
    Error error;
};
/// No process of the group is left, strays included, and all are reaped.
struct GroupGone {};
struct AbortReceived {
    Generation generation{};
    std::string reason;
};
struct JobFinished {
    coordinator::Verdict verdict;
};
/// INT, TERM, HUP or QUIT, or another that is to end the job: end with grace.
struct StopSignal {
    int signal = 0;
    int for_workers = SIGTERM;  ///< what the workers get of it
};
/// USR1 or USR2: for the workers, the job goes on.
struct NotifySignal {
    int signal = 0;
};
/// The daemon was not reached, refuses us, is silent or gone.
struct DaemonLost {
    std::string why;
    int exit_code =
        exit_code::kInfrastructure;  ///< kUsage when it refuses us: another command is needed, not another try
    std::string remedy = {};         ///< as of Finish
};
struct GuardLost {};
/// State::deadline may have passed.
struct Tick {};

using Event = std::variant<Assigned, WorkerExited, SpawnFailed, GroupGone, AbortReceived, JobFinished, StopSignal,
                           NotifySignal, DaemonLost, GuardLost, Tick>;

// ---- actions: what to do, in order ----

struct StartWorkers {
    coordinator::Assignment assignment;
    friend bool operator==(const StartWorkers&, const StartWorkers&) = default;
};
/// To every process of the group: the workers, their children, and whoever turns up among the strays later.
struct SignalGroup {
    int signal = 0;
    friend bool operator==(const SignalGroup&, const SignalGroup&) = default;
};
/// To the workers alone: a helper of theirs that does not expect the signal would die of it.
struct NotifyWorkers {
    int signal = 0;
    friend bool operator==(const NotifyWorkers&, const NotifyWorkers&) = default;
};
/// Sends WorkerFailed, with the evidence (pid, stderr, error file) that only the agent has. `why`: of a failed start.
struct ReportFailure {
    Generation generation{};
    LocalRank rank{};
    ExitStatus status;
    std::string why;
    friend bool operator==(const ReportFailure&, const ReportFailure&) = default;
};
struct SendMessage {
    coordinator::AgentMessage message;
    friend bool operator==(const SendMessage&, const SendMessage&) = default;
};
/// The agent's end.
struct Finish {
    int exit_code = 0;
    std::string why;  ///< for people; empty when the verdict says it
    std::optional<coordinator::Verdict> verdict;
    std::string remedy = {};  ///< what to do about `why`, a sentence without its full stop; empty: `why` has said it
    friend bool operator==(const Finish&, const Finish&) = default;
};

using Action = std::variant<StartWorkers, SignalGroup, NotifyWorkers, ReportFailure, SendMessage, Finish>;

// ---- state ----

enum class Phase {
    kIdle,       ///< no group: connecting, in rendezvous, between two groups
    kRunning,    ///< every worker runs or has exited with 0
    kStopping,   ///< the group was told to end; what is left at the deadline is killed
    kSucceeded,  ///< every worker exited with 0; waiting for the job's end. Strays may still be stopping
    kDone,
};

[[nodiscard]] std::string_view to_string(Phase phase);

struct State {
    std::chrono::milliseconds grace{30'000};
    int slots = 1;

    Phase phase = Phase::kIdle;
    Generation generation{-1};                    ///< of the latest group; -1: there was none
    int rank_base = 0;                            ///< RANK of its first worker on this node
    std::set<LocalRank> running;                  ///< workers that have not ended
    bool gone = true;                             ///< no process of the group is left
    bool killed = false;                          ///< it got SIGKILL
    int asked_with = SIGTERM;                     ///< the signal by which it was told to end
    std::optional<TimePoint> deadline;            ///< when a Tick is due
    std::optional<coordinator::Assignment> next;  ///< to be started when the group is gone
    std::optional<int> stop_signal;               ///< this node was told to leave
    TimePoint stopped_at{};                       ///< … first at this time
    std::size_t drained = 0;                      ///< … when this many workers were running
    int node_count = 1;                           ///< of the latest group
    std::optional<Finish> ending;                 ///< how to end when the group is gone
    bool guard_lost = false;                      ///< this node counts as lost: the daemon hears nothing more
};

struct Step {
    State next;
    std::vector<Action> actions;
    std::string reason;  ///< one line for people; empty when there is nothing to tell
};

[[nodiscard]] Step step(State state, const Event& event, TimePoint now);

}  // namespace ddprun::agent
