#pragma once
// Asks whether a ddprund answers at an address. Called by the node that has read the address at a meeting point.

#include <string>

#include "common/clock.hpp"
#include "launcher/meeting/https.hpp"
#include "launcher/meeting/meet.hpp"

namespace ddprun::launcher {

/// Returns the meaning of the answer to "GET /" at a published address. Pure.
[[nodiscard]] Reach reach_of(const Result<HttpAnswer>& answer);

/// Asks at `address`; blocks until `deadline` at most.
[[nodiscard]] Reach ask_daemon(const Endpoint& address, TimePoint deadline);

/// The answer of a port to the question whose daemon has it.
struct StepAnswer {
    std::string step;        ///< the name of the job step that the daemon serves; empty: there is no such daemon
    bool is_ending = false;  ///< its job is over, or bound to end
    std::string failure;     ///< why nothing has answered; empty: something has
};

/// Returns the meaning of the answer to "GET /". Pure.
[[nodiscard]] StepAnswer step_of(const Result<HttpAnswer>& answer);

/// Asks at `address` which job step its daemon serves; blocks until `deadline` at most.
[[nodiscard]] StepAnswer ask_step(const Endpoint& address, TimePoint deadline);

}  // namespace ddprun::launcher
