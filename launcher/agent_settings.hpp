#pragma once
// The settings of this node's agent, from the plan of its start. Called by launch().

#include "agent/agent.hpp"
#include "common/endpoint.hpp"
#include "launcher/plan.hpp"

namespace ddprun::launcher {

/// The number of the launcher of emulated nodes among the writers of their console; those of the nodes follow.
inline constexpr int kLauncherAsWriter = 1;

/// Returns the interpreter of the Python programs, which is the same for all of them; null: there is none.
[[nodiscard]] const Interpreter* interpreter_of(const Plan& plan);

/// Returns the settings of the agent, which reaches the daemon at `endpoint`. An emulated node takes over the
/// descriptors that its launcher has given it.
[[nodiscard]] agent::AgentConfig agent_config(Plan plan, const Endpoint& endpoint);

}  // namespace ddprun::launcher
