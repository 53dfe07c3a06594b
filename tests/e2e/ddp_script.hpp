#pragma once
// The PyTorch script that the interoperability tests run, and the check of its output.

#include <string>

#include "tests/e2e/process.hpp"

namespace e2e {

/// Trains a linear model with DistributedDataParallel over gloo, written as a user would. Prints "rank R of W:
/// checksum" at the end.
extern const char* const kDdpScript;

[[nodiscard]] bool torch_is_installed(const Sandbox& sandbox);

/// Checks that `world` ranks reported and all ended with the same parameters.
void check_ddp_output(const std::string& out, int world);

}  // namespace e2e
