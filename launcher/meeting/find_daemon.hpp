#pragma once
// Finds the daemon of a job step, which the step's first host has started at one of several ports. Called by launch()
// on the other nodes, before the agent starts.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/endpoint.hpp"
#include "common/error.hpp"

namespace ddprun::launcher {

/// Where to look.
struct StepDaemon {
    std::string host;
    std::vector<std::uint16_t> ports;  ///< in the order in which its host tries them; not empty
    std::string name;                  ///< of the step
    std::string title;                 ///< of the step, for messages
};

/// Returns the endpoint at which a daemon answers with the name of the step; asks one port after the other, again and
/// again. `report` gets a line when that takes longer. Blocks for `timeout` at most. Errors: kTimeout.
[[nodiscard]] Result<Endpoint> find_daemon(const StepDaemon& wanted, std::chrono::milliseconds timeout,
                                           const std::function<void(const std::string&)>& report);

}  // namespace ddprun::launcher
