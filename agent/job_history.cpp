#include "agent/job_history.hpp"

#include <utility>
#include <variant>

namespace ddprun::agent {

void JobHistory::note(const Event& event) {
    if (const auto* const welcomed = std::get_if<Welcomed>(&event.what)) run_id_ = welcomed->run_id;
    if (std::holds_alternative<WaitReceived>(event.what) && !is_open()) pause(event.now);
    if (const auto* const abort = std::get_if<AbortReceived>(&event.what)) {
        const bool of_this = !groups_.empty() && groups_.back().assignment.generation == abort->generation;
        if (of_this && abort->failing_for > Duration{}) note_failure(abort->failing_for);
    }
    if (const auto* const reaped = std::get_if<GroupReaped>(&event.what); reaped != nullptr && is_open()) {
        note_steps(reaped->steps);
        close_group(event.now);
        if (succeeded_) pause(event.now);  // for the end of other nodes
    }
}

void JobHistory::note(const Action& action, TimePoint now) {
    if (const auto* start = std::get_if<StartWorkers>(&action)) {
        go_on(now);
        groups_.push_back({start->assignment, waited_since_, now});
        groups_.back().pauses = std::exchange(pauses_, {});
        succeeded_ = false;
        if (groups_.size() > kMaxGroups) groups_.pop_front();
    }
    if (std::holds_alternative<Finish>(action)) return finish(now);
    if (!is_open()) return;
    if (std::holds_alternative<SuspendGroup>(action)) pause(now);
    if (std::holds_alternative<ContinueGroup>(action)) go_on(now);
    const auto* const sent = std::get_if<SendMessage>(&action);
    if (sent != nullptr && std::holds_alternative<protocol::GroupSucceeded>(sent->message)) succeeded_ = true;
    if (!std::holds_alternative<SignalGroup>(action)) return;
    go_on(now);  // the signal also continues workers that were held, or it kills them
    if (!groups_.back().stop_began_at) groups_.back().stop_began_at = now;
}

void JobHistory::note_started(TimePoint now) {
    if (!groups_.empty() && !groups_.back().started_at) groups_.back().started_at = now;
}

void JobHistory::note_failure(Duration failing_for) {
    if (groups_.empty() || groups_.back().stop_began_at) return;  // it has not begun the stop
    if (!groups_.back().detected_after) groups_.back().detected_after = failing_for;
}

/// Accounts for the time until now: the job is over.
void JobHistory::finish(TimePoint now) {
    if (is_open()) return close_group(now);  // processes that survive SIGKILL are left
    if (groups_.empty()) {
        go_on(now);
    } else {  // for the workers of other nodes, whatever reasons to wait the daemon has sent
        paused_since_.reset();
        pauses_ = {{waited_since_, now}};
    }
    time_ += account_of_wait(waited_since_, now, pauses_);
}

const GroupTimes* JobHistory::before_latest() const {
    return groups_.size() < 2 ? nullptr : &groups_[groups_.size() - 2];
}

TimeAccount JobHistory::time_of_latest(TimePoint now) const { return account_of(groups_.back(), names_steps_, now); }

void JobHistory::pause(TimePoint now) {
    if (!paused_since_) paused_since_ = now;
}

void JobHistory::go_on(TimePoint now) {
    if (!paused_since_) return;
    std::vector<Pause>& pauses = is_open() ? groups_.back().pauses : pauses_;
    const Pause pause{*std::exchange(paused_since_, std::nullopt), now};
    if (pauses.size() < kMaxPauses) pauses.push_back(pause);
}

/// With the first step of the job it is known that groups without one were restoring.
void JobHistory::note_steps(const StepTimes& steps) {
    if (!is_open()) return;
    groups_.back().steps = steps;
    if (!steps.latest || std::exchange(names_steps_, true)) return;
    const auto correct = [](TimeAccount& time) { time.restore += std::exchange(time.productive, {}); };
    for (GroupTimes& group : groups_) correct(group.time);
    correct(time_);
}

void JobHistory::close_group(TimePoint now) {
    go_on(now);
    GroupTimes& group = groups_.back();
    group.ended_at = now;
    group.time = account_of(group, names_steps_, now);
    time_ += group.time;
    waited_since_ = now;
}

}  // namespace ddprun::agent
