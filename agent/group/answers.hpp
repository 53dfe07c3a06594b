#pragma once
// Events that change no state of the worker group: each is answered by actions alone. Pure; called by
// worker_group::step().

#include <vector>

#include "agent/group/worker_group.hpp"

namespace ddprun::agent::worker_group {

/// A list of actions for an event that leaves `state` as it is.
[[nodiscard]] std::vector<Action> answer(const State& state, const Welcomed& event);
[[nodiscard]] std::vector<Action> answer(const State& state, const WaitReceived& event);
[[nodiscard]] std::vector<Action> answer(const State& state, const NoticeReceived& event);
[[nodiscard]] std::vector<Action> answer(const State& state, const ConnectionChanged& event);
[[nodiscard]] std::vector<Action> answer(const State& state, const NotifySignal& event);
[[nodiscard]] std::vector<Action> answer(const State& state, const LogFileProblem& event);
[[nodiscard]] std::vector<Action> answer(const State& state, const StallCheckDue& event);
/// Flight records are sent one by one, so that each waits for whatever else has happened.
[[nodiscard]] std::vector<Action> answer(const State& state, const RecordsRequested& event);
[[nodiscard]] std::vector<Action> answer(const State& state, const RecordSent& event);

}  // namespace ddprun::agent::worker_group
