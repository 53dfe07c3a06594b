#pragma once
// The number of threads that a rank computes with.

#include "ddp/context.hpp"

namespace train {

/// Returns OMP_NUM_THREADS if the launcher or user has set it; else the CPUs that this process may use, divided by the
/// ranks of its node.
[[nodiscard]] int default_threads(const ddp::Context& context);

/// Sets the threads of all matrix products of this process.
void use_threads(int threads);

}  // namespace train
