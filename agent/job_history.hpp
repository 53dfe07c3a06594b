#pragma once
// JobHistory: the worker groups of this node with their times, and the account of all its time, for the report and the
// events. Follows the agent's events and decisions; owned by Agent. Pure.

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "agent/group/actions.hpp"
#include "agent/group/events.hpp"
#include "agent/group_times.hpp"
#include "agent/time_account.hpp"
#include "common/clock.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

class JobHistory {
public:
    /// The number of groups that are kept.
    static constexpr std::size_t kMaxGroups = 32;
    /// The number of pauses of a group that are kept; a later one counts as the time that it interrupts.
    static constexpr std::size_t kMaxPauses = 1'000;

    explicit JobHistory(TimePoint began) : waited_since_(began) {}

    void note(const Event& event);
    void note(const Action& action, TimePoint now);
    /// Notes that all workers of the group run.
    void note_started(TimePoint now);
    /// Notes a failure of a worker of this node that began `failing_for` ago. Ignored during the stop of the group.
    void note_failure(Duration failing_for);

    /// Notes the steps of the latest group, unless it has ended.
    void note_steps(const StepTimes& steps);

    /// Returns the id of the run; empty: this node has not joined yet.
    [[nodiscard]] const std::string& run_id() const { return run_id_; }
    [[nodiscard]] const std::deque<GroupTimes>& groups() const { return groups_; }
    /// Returns the newest group; null: there was none.
    [[nodiscard]] const GroupTimes* latest() const { return groups_.empty() ? nullptr : &groups_.back(); }
    /// Returns the group before it; null: it is the first.
    [[nodiscard]] const GroupTimes* before_latest() const;
    /// Returns the account of the latest group so far.
    [[nodiscard]] TimeAccount time_of_latest(TimePoint now) const;
    /// Returns the account of all the time, after Finish.
    [[nodiscard]] const TimeAccount& time() const { return time_; }
    /// Returns whether a worker has called ddp::set_step() so far.
    [[nodiscard]] bool names_steps() const { return names_steps_; }

private:
    /// Returns whether the latest group has not ended.
    [[nodiscard]] bool is_open() const { return !groups_.empty() && !groups_.back().ended_at; }
    void pause(TimePoint now);
    void go_on(TimePoint now);
    void finish(TimePoint now);
    void close_group(TimePoint now);

    std::deque<GroupTimes> groups_;  ///< the newest ones
    TimePoint waited_since_;
    std::vector<Pause> pauses_;              ///< since then, before the next group
    std::optional<TimePoint> paused_since_;  ///< the pause that goes on
    bool succeeded_ = false;                 ///< all workers of the latest group have exited well
    TimeAccount time_;                       ///< of the groups that have ended, and at last of all
    bool names_steps_ = false;
    std::string run_id_;
};

}  // namespace ddprun::agent
