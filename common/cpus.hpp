#pragma once
// The CPUs that this process may use.

namespace ddprun {

/// How many the affinity mask allows: what a container or a scheduler has left to us. At least 1.
[[nodiscard]] int allowed_cpus();

}  // namespace ddprun
