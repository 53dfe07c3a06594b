#pragma once
// The PyTorch script that the interoperability tests run, and what it must print.

#include <string>

#include "tests/e2e/process.hpp"

namespace e2e {

/// Trains a linear model with DistributedDataParallel over gloo, as users write it. Prints "rank R of W: checksum" at the end.
extern const char* const kDdpScript;

[[nodiscard]] bool torch_is_installed(const Sandbox& sandbox);

/// Checks that `world` ranks reported and all ended with the same parameters.
void check_ddp_output(const std::string& out, int world);

}  // namespace e2e
