#pragma once
// Implements ddpctl status, drain and undrain: each sends one order to the job's daemon and prints the answer.

#include "ctl/options.hpp"

namespace ddprun::ctl {

/// Each runs the command and returns the exit code; errors, and the reason of a refusal, go to stderr.
[[nodiscard]] int run_status(const StatusOptions& options);
[[nodiscard]] int run_order(const OrderOptions& options);

}  // namespace ddprun::ctl
