#pragma once
// Describes the agent's events and decisions as JSON objects, for --events (docs/report.md). Pure.

#include <boost/json.hpp>

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "agent/config/agent_config.hpp"
#include "agent/group/worker_group.hpp"
#include "agent/job_history.hpp"

namespace ddprun::agent {

/// Returns the event, whatever is decided about it; nullopt: it has no line. The member "event" is its name. `state`:
/// after the event.
[[nodiscard]] std::optional<boost::json::object> describe(const Event& event, const worker_group::State& state,
                                                          const AgentConfig& config);
/// Returns the event of a decision; nullopt: it has none. `state` and `reason`: those of the step.
[[nodiscard]] std::optional<boost::json::object> describe(const Action& action, const worker_group::State& state,
                                                          const std::string& reason, const AgentConfig& config);
/// Returns the start of the newest group of `history`, with the phases of the restart that led to it. `pids`: of the
/// workers, by local rank.
[[nodiscard]] boost::json::object describe_start(const std::vector<pid_t>& pids, const JobHistory& history,
                                                 const AgentConfig& config);

}  // namespace ddprun::agent
