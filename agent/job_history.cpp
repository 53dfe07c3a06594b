#include "agent/job_history.hpp"

#include <variant>

namespace ddprun::agent {

void JobHistory::note(const Event& event) {
    if (const auto* welcomed = std::get_if<Welcomed>(&event.what)) run_id_ = welcomed->run_id;
    if (!std::holds_alternative<GroupReaped>(event.what) || groups_.empty()) return;
    groups_.back().ended_at = event.now;
    waited_since_ = event.now;
}

void JobHistory::note(const Action& action, TimePoint now) {
    if (const auto* start = std::get_if<StartWorkers>(&action)) {
        groups_.push_back({start->assignment, waited_since_, now});
        if (groups_.size() > kMaxGroups) groups_.pop_front();
    }
    const bool stops = std::holds_alternative<SignalGroup>(action);
    if (stops && !groups_.empty() && !groups_.back().stop_began_at) groups_.back().stop_began_at = now;
}

void JobHistory::note_started(TimePoint now) {
    if (!groups_.empty() && !groups_.back().started_at) groups_.back().started_at = now;
}

void JobHistory::note_failure(Duration failing_for) {
    if (groups_.empty() || groups_.back().stop_began_at) return;  // it has not begun the stop
    if (!groups_.back().detected_after) groups_.back().detected_after = failing_for;
}

const GroupTimes* JobHistory::before_latest() const {
    return groups_.size() < 2 ? nullptr : &groups_[groups_.size() - 2];
}

}  // namespace ddprun::agent
