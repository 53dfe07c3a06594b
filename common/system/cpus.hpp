#pragma once
// Counts the CPUs that this process may use.

namespace ddprun {

/// Returns how many CPUs the affinity mask allows, which a container or a scheduler may have reduced. At least 1.
[[nodiscard]] int allowed_cpus();

}  // namespace ddprun
