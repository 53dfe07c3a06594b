#pragma once
// Rules about a notice of preemption: the workers of all nodes get it, agree on the step at which they stop, and end
// by themselves (docs/design/031). Private to the coordinator.

#include <chrono>
#include <optional>
#include <string>

#include "common/error.hpp"
#include "rendezvous/coordinator/transition.hpp"

namespace ddprun::coordinator {

/// Gives the running group, and every later one, notice: a node has got one. Only the first of a job counts, and of
/// later ones a deadline that is earlier.
void preemption_noticed(Transition& t, const NodeId& id, PreemptionNotice notice);
/// Does the same for an operator (ddpctl preempt). Returns its effect, or the reason of its refusal.
[[nodiscard]] Result<std::string> order_preemption(Transition& t, std::optional<std::chrono::milliseconds> time_left);
/// Sends the notice to the members of a group that begins to run. Does nothing if there was none.
void give_notice(Transition& t);
/// Repeats the notice to a member that has reconnected.
void repeat_notice(Transition& t, const NodeId& id);
/// Notes how far the workers of a member have come. The answer of the last member decides the step at which all stop.
void steps_taken(Transition& t, const NodeId& id, const StepsTaken& message);
/// Decides that step if no answer is missing any more.
void agree_on_stop(Transition& t);
/// Stops the running group at the deadline of the notice.
void end_overdue_preemption(Transition& t);
/// Returns whether the job ends where another group would start. A notice by a signal may be a user's request for a
/// checkpoint, after which the job goes on.
[[nodiscard]] bool ends_instead_of_starting(const State& state);
/// Returns whether a group that has notice is not restarted for the sake of more nodes.
[[nodiscard]] bool holds_growth(const State& state);
/// Returns whether the inquiries are to find out why the running group is overdue.
[[nodiscard]] bool asks_why_overdue(const State& state);

}  // namespace ddprun::coordinator
