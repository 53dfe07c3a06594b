#pragma once
// Collectives for which NCCL has no call: each becomes the sends and receives of every rank, fused into one step. Pure.

#include <vector>

#include "worker_lib/src/group/backend.hpp"
#include "worker_lib/src/operation/transfer.hpp"

namespace ddp::detail {

/// Returns whether the collective is made of messages: gather, scatter, all_to_all and all forms with counts.
[[nodiscard]] bool is_messages(OpKind kind);

/// Returns the messages of rank `rank` of `ranks`: at most one to and one from each rank, in rank order. Empty
/// messages, which both sides skip, are included. A rank's message to itself is included unless it is in place.
[[nodiscard]] std::vector<Transfer> messages_of(const Operation& operation, int rank, int ranks);

}  // namespace ddp::detail
