#pragma once
// Decides for one node when its workers start, stop and are killed, what is reported to the daemon, and when the agent
// ends. Pure: no clock, process, socket or log. The table is in docs/design/003-worker-group.md; the code has its rows.

#include <chrono>
#include <csignal>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/group/actions.hpp"
#include "agent/group/events.hpp"
#include "common/clock.hpp"
#include "common/ids.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent::worker_group {

/// A second INT or TERM at least this long after the first means "now". A sooner one is the same request, sent by both
/// shell and scheduler.
inline constexpr std::chrono::milliseconds kSecondSignalAfter{500};
/// Workers that ran less than this before the stop signal were stopped by it, if it reached them or the daemon first.
inline constexpr std::chrono::seconds kSameSignal{1};
/// A stop by a signal that lasts this long is reported with the workers that have not ended.
inline constexpr std::chrono::milliseconds kStopWaitReportedAfter{1500};
/// The time for which a worker that is ending by itself is spared the group's signal: a signal before its end would
/// replace its exit code, and the worker would count as stopped by ddprun instead of failed.
inline constexpr std::chrono::seconds kSparedFor{1};
/// The time that SIGKILL may take. A process that sleeps in the kernel (state D) survives it.
inline constexpr std::chrono::seconds kUnkillableAfter{60};

/// A signal for the workers that another node forwards, and one that this node got, are the same notification if they
/// come within this time: schedulers send it to every node of a job. The daemon merges what several nodes forward.
inline constexpr std::chrono::seconds kSameNotification{1};

/// Deadlines of a notice that differ by less are one, which the network has delayed.
inline constexpr std::chrono::seconds kSameDeadline{1};

/// The phase of this node's worker group.
enum class Phase {
    kIdle,       ///< no group: connecting, in rendezvous, between two groups
    kRunning,    ///< every worker runs or has exited with 0
    kStopping,   ///< the group is being stopped; the processes that are left at the deadline are killed
    kSucceeded,  ///< every worker exited with 0; waiting for the job's end. Strays may still be stopping
    kDone,
};
/// The newest deliveries of a signal for the workers.
struct Notification {
    TimePoint at;       ///< of the newest
    int unmatched = 0;  ///< those that another node forwarded, less those that this process got: each pair is one
};
/// A plain value that step() alone changes. It has more than 15 members because each is one fact of the table in
/// docs/design/003.
struct State {
    std::chrono::milliseconds grace{};  ///< from the first signal to SIGKILL; AgentConfig::grace
    int slots = 1;
    std::vector<int> handled_signals;  ///< AgentConfig::handled_signals

    Phase phase = Phase::kIdle;
    Generation generation{-1};                  ///< of the latest group; -1: there was none
    int rank_base = 0;                          ///< RANK of its first worker on this node
    std::set<LocalRank> running;                ///< workers that have not ended
    bool reaped = true;                         ///< no process of the group is left
    bool killed = false;                        ///< the group got SIGKILL
    int group_signal = SIGTERM;                 ///< the signal that the group got before that
    std::optional<TimePoint> deadline;          ///< when the processes that are left are killed, or given up
    std::optional<TimePoint> spared_until;      ///< when the workers that were spared the signal get it
    std::optional<protocol::Assignment> next;   ///< to be started when the group is reaped
    std::optional<int> stop_signal;             ///< this node leaves the job because of this signal
    TimePoint stopped_at{};                     ///< when the first stop signal came; before that: of the latest stop
    std::optional<TimePoint> wait_reported_at;  ///< when the workers that have not ended by then are reported
    std::string failure;           ///< of a worker of the latest group, one clause; the last line after a signal has it
    bool failed_here = false;      ///< it was a worker of this node …
    int failed_by = 0;             ///< … that this signal ended; 0: none did
    std::size_t drained = 0;       ///< workers that were running at `stopped_at`
    int node_count = 1;            ///< of the latest group
    std::optional<Finish> ending;  ///< how to end when the group is reaped
    bool suspended = false;        ///< Ctrl-Z: workers stop, and none is started
    bool frozen = false;           ///< the lease has ended: the same, until the daemon is reached
    std::optional<LocalRank> held_start;   ///< held before this worker was started
    std::map<int, Notification> notified;  ///< by signal
    std::uint64_t newest_forwarded = 0;    ///< the number of the newest notification that another node forwarded
    /// The newest notice of a preemption to the workers of the latest group, and its deadline.
    std::optional<protocol::Preempt> notice;
    std::optional<TimePoint> notice_deadline;
    std::optional<protocol::Preempt> next_notice;  ///< the same, to those of `next`
    bool signalled = false;                        ///< the workers of the latest group got SIGUSR1
    bool preempted = false;                        ///< one of them has ended because of the notice
    bool notice_reported = false;                  ///< this node's SIGUSR1, to the daemon
    std::optional<std::uint64_t> latest_step;      ///< the greatest that a worker of this node has begun in any group
};

/// Returns whether the workers are held: they stop, and none is started.
[[nodiscard]] inline bool is_held(const State& state) { return state.suspended || state.frozen; }

/// The result of one event.
struct Step {
    State next;
    std::vector<Action> actions;
    std::string reason;  ///< one line for the user; empty: there is nothing new
    /// When the state that the reason describes ends at the latest; a line that is printed late has the time left.
    std::optional<TimePoint> reason_until;
    /// A stop begins here. Its outcome, printed when it is over, repeats the reason, so this one is printed only if the
    /// stop takes long.
    bool outcome_follows = false;
    /// Reasons of earlier steps that are not printed yet are dropped.
    bool supersedes_reasons = false;
};

/// Returns when a Tick is due; empty: none is.
[[nodiscard]] std::optional<TimePoint> next_deadline(const State& state);

/// Returns the state after `event`, the actions to perform in order, and the reason.
[[nodiscard]] Step step(State state, const Event& event);

}  // namespace ddprun::agent::worker_group
