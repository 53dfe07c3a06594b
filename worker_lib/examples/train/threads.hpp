#pragma once
// How many threads a rank computes with.

#include "ddp/context.hpp"

namespace train {

/// OMP_NUM_THREADS if the launcher or user has set it; else the CPUs this process may use, divided by the ranks of its
/// node.
[[nodiscard]] int default_threads(const ddp::Context& context);

/// For all matrix products of this process from now on.
void use_threads(int threads);

}  // namespace train
