#pragma once
// Runs one node of a job: joins the rendezvous, starts the workers of its assignments, watches, stops and restarts
// them, and ends with the job's verdict. It has an io_context of its own. Call run_agent() from the main thread, which
// parent-death signals follow.

#include "agent/config/agent_config.hpp"

namespace ddprun::agent {

/// Runs until the job is over or this node leaves it. Returns the exit code of ddprun (docs/exit-codes.md). Everything
/// that the user must know has been printed then, and no process that the agent started is left.
[[nodiscard]] int run_agent(AgentConfig config);

}  // namespace ddprun::agent
