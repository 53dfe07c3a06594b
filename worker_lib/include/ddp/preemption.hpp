#pragma once
// Preemption: the launcher's notice that this job is about to be ended, and the agreement of all ranks on the step at
// which they stop, so that they write one checkpoint.

#include "ddp/export.hpp"

namespace DDP_EXPORT ddp {

/// The exit code of a worker that has stopped because of a notice, after it has saved what it needs to resume. ddprun
/// then ends with this code as well: "preempted, requeue me".
inline constexpr int kPreemptedExitCode = 75;

/// Returns true on all ranks in the same call after a notice of preemption: then save a checkpoint and exit with
/// kPreemptedExitCode. Every rank of all programs of the job calls it once per step, at the same place. A call costs
/// some tens of nanoseconds before a notice; the first after it waits for the launchers of all nodes to agree, some
/// milliseconds. One thread at a time. Always false when the launcher is not ddprun.
[[nodiscard]] bool agree_to_stop();

}  // namespace ddp
