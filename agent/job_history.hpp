#pragma once
// JobHistory: the worker groups of this node with the times of their phases, for the report and the events. Follows
// the agent's events and decisions; owned by Agent. Pure.

#include <deque>
#include <optional>
#include <string>

#include "agent/group/actions.hpp"
#include "agent/group/events.hpp"
#include "common/clock.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

/// One worker group of this node; a time is absent until it is known.
struct GroupTimes {
    protocol::Assignment assignment;
    TimePoint waited_since;  ///< for this group: the start of the agent, or the end of the group before
    TimePoint assigned_at;
    std::optional<TimePoint> started_at = {};     ///< all its workers run
    std::optional<TimePoint> stop_began_at = {};  ///< or all workers had succeeded
    std::optional<TimePoint> ended_at = {};       ///< no process is left
    /// How long before the stop the failure of a worker of this node began; absent: no such failure was the reason of
    /// the stop, or there was no sign of it before the worker ended.
    std::optional<Duration> detected_after = {};
};

class JobHistory {
public:
    /// The number of groups that are kept.
    static constexpr std::size_t kMaxGroups = 32;

    explicit JobHistory(TimePoint began) : waited_since_(began) {}

    void note(const Event& event);
    void note(const Action& action, TimePoint now);
    /// Notes that all workers of the group run.
    void note_started(TimePoint now);
    /// Notes a failure of a worker of this node that began `failing_for` ago. Ignored during the stop of the group.
    void note_failure(Duration failing_for);

    /// Returns the id of the run; empty: this node has not joined yet.
    [[nodiscard]] const std::string& run_id() const { return run_id_; }
    [[nodiscard]] const std::deque<GroupTimes>& groups() const { return groups_; }
    /// Returns the newest group; null: there was none.
    [[nodiscard]] const GroupTimes* latest() const { return groups_.empty() ? nullptr : &groups_.back(); }
    /// Returns the group before it; null: it is the first.
    [[nodiscard]] const GroupTimes* before_latest() const;

private:
    std::deque<GroupTimes> groups_;  ///< the newest ones
    TimePoint waited_since_;
    std::string run_id_;
};

}  // namespace ddprun::agent
