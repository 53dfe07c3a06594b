#pragma once
// Reads the facts of this machine: the kernel's files, limits, interfaces, GPUs. Changes nothing. A fact that
// cannot be read is absent, not an error.

#include <string>

#include "worker_lib/check/facts.hpp"

namespace ddp::check {

/// Returns a text that the processes of this host share, and those of no other one: its boot id and its name.
[[nodiscard]] std::string host_identity();

/// Returns the facts of this node; those that are measured between nodes are absent. The caller sets the ranks,
/// and leaves out the GPUs that they may not use.
[[nodiscard]] Node collect_facts();

}  // namespace ddp::check
