#pragma once
// Answers the events that change no state of the worker group by actions alone. Pure; called by worker_group::step().

#include <vector>

#include "agent/group/worker_group.hpp"

namespace ddprun::agent::worker_group {

/// Returns the actions for an event that leaves `state` as it is.
[[nodiscard]] std::vector<Action> answer(const State& state, const WaitReceived& event);
[[nodiscard]] std::vector<Action> answer(const State& state, const NoticeReceived& event);
[[nodiscard]] std::vector<Action> answer(const State& state, const ConnectionChanged& event);
[[nodiscard]] std::vector<Action> answer(const State& state, const LogFileProblem& event);
[[nodiscard]] std::vector<Action> answer(const State& state, const StallCheckDue& event);
/// Flight records are sent one by one, so that other events are handled in between.
[[nodiscard]] std::vector<Action> answer(const State& state, const RecordsRequested& event);
[[nodiscard]] std::vector<Action> answer(const State& state, const RecordSent& event);

}  // namespace ddprun::agent::worker_group
