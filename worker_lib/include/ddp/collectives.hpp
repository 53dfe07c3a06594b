#pragma once
// Collectives that are made of others: bytes of any length, many small buffers at once, weighted means. Every rank of
// the group makes the same call, and each call waits for its result. They throw as ProcessGroup's collectives do. Their
// options apply to each of the one or two operations that they make. They work on host memory, so they need a group of
// the native backend.

#include <string>
#include <string_view>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/export.hpp"
#include "ddp/process_group.hpp"
#include "ddp/types.hpp"

namespace DDP_EXPORT ddp {

/// Gives every rank root's bytes, of any length: a text, or a message that the caller has serialised.
void broadcast_string(ProcessGroup& group, std::string& bytes, int root, const OpOptions& options = {});
/// Returns all ranks' bytes, by rank. Their lengths may differ.
[[nodiscard]] std::vector<std::string> all_gather_strings(ProcessGroup& group, std::string_view bytes,
                                                          const OpOptions& options = {});
/// Returns all ranks' bytes, by rank, on root, and an empty list on the others.
[[nodiscard]] std::vector<std::string> gather_strings(ProcessGroup& group, std::string_view bytes, int root,
                                                      const OpOptions& options = {});

/// Reduces each of many small buffers, as all_reduce does, in one operation: it copies them together. They have one
/// type, and the same counts on every rank, which a second small operation compares. Throws
/// Error{InvalidArgument} for different types.
void all_reduce_coalesced(ProcessGroup& group, List<Buffer> buffers, ReduceOp op, const OpOptions& options = {});

/// Leaves the mean over the ranks in `values` (f32 or f64), in which each rank counts as much as its `weight`: sum of
/// weight * values, divided by the sum of weights. Returns that sum. So SyncBatchNorm's statistics are the means of x
/// and of x * x, weighted by the size of each rank's batch. Sums are in f64, and must not exceed it. A rank of weight 0
/// has no influence, even if its values are not finite. If all weights are 0, the values become 0. Throws
/// Error{InvalidArgument} for a weight that is negative or not finite.
double weighted_mean(ProcessGroup& group, Buffer values, double weight, const OpOptions& options = {});

}  // namespace ddp
