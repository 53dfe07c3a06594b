#pragma once
// Identifies the scheduler's step in which a process runs. A worker gets it in a variable, so that a ddprun which the
// worker starts knows whether it is in that step or in one of its own. Pure.

#include <fmt/format.h>

#include <array>
#include <string>

#include "common/system/environment.hpp"

namespace ddprun {

inline constexpr const char* kSchedulerStepVariable = "DDPRUN_SCHEDULER_STEP";

/// The variables that name the job of another starter than SLURM, or as much of it as there is.
inline constexpr std::array kStarterVariables{
    "PMIX_NAMESPACE", "MPI_LOCALNRANKS", "PMI_SIZE",     "PMI_RANK",  "FLUX_JOB_ID",
    "FLUX_URI",       "LSB_JOBID",       "LSB_JOBINDEX", "PBS_JOBID", "JOB_COMPLETION_INDEX"};

/// Returns "71.0", the job and step of SLURM, or "71." outside the steps of a job, followed by the variables of other
/// starters, as in "71.,PMIX_NAMESPACE=1504509953"; empty: there is none.
[[nodiscard]] inline std::string scheduler_step(const Environment& environment) {
    const auto value = [&](const char* name) {
        const auto found = environment.find(name);
        return found == environment.end() ? std::string() : found->second;
    };
    const std::string job = value("SLURM_JOB_ID");
    std::string step = job.empty() ? "" : fmt::format("{}.{}", job, value("SLURM_STEP_ID"));
    for (const char* const name : kStarterVariables)
        if (const std::string text = value(name); !text.empty()) step += fmt::format(",{}={}", name, text);
    return step;
}

}  // namespace ddprun
