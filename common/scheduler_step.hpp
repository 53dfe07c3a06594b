#pragma once
// Identifies the scheduler's step in which a process runs. A worker gets it in a variable, so that a ddprun which the
// worker starts knows whether it is in that step or in one of its own. Pure.

#include <fmt/format.h>

#include <string>

#include "common/system/environment.hpp"

namespace ddprun {

inline constexpr const char* kSchedulerStepVariable = "DDPRUN_SCHEDULER_STEP";

/// Returns "71.0", the job and step of SLURM, or "71." outside the steps of a job; empty: there is no scheduler.
[[nodiscard]] inline std::string scheduler_step(const Environment& environment) {
    const auto value = [&](const char* name) {
        const auto found = environment.find(name);
        return found == environment.end() ? std::string() : found->second;
    };
    const std::string job = value("SLURM_JOB_ID");
    return job.empty() ? "" : fmt::format("{}.{}", job, value("SLURM_STEP_ID"));
}

}  // namespace ddprun
