#pragma once
// What NCCL has no call of its own for: such a collective is the sends and receives of each rank, fused into one step.
// Pure.

#include <vector>

#include "worker_lib/src/backend.hpp"
#include "worker_lib/src/transfer.hpp"

namespace ddp::detail {

/// gather, scatter, all_to_all and all forms with counts.
[[nodiscard]] bool is_messages(OpKind kind);

/// The messages of rank `rank` of `ranks`, to or from each rank at most one and in the order of the ranks; empty ones,
/// which both sides leave out, are among them. What a rank has for itself is a message, too, unless it lies in its
/// place already.
[[nodiscard]] std::vector<Transfer> messages_of(const Operation& operation, int rank, int ranks);

}  // namespace ddp::detail
