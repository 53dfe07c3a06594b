#pragma once
// Broadcasts buffers of any size in pieces, so that a large model does not need a staging area of its size at once.

#include <span>
#include <string_view>

#include "ddp/process_group.hpp"

namespace ddp::detail {

/// Collective; the same sizes and types on every rank. Returns when all ranks' `buffers` hold root's values. Throws
/// what the group throws; the buffers are then unspecified on ranks other than root.
void broadcast_in_pieces(ProcessGroup& group, std::span<const Buffer> buffers, int root, std::string_view tag);

}  // namespace ddp::detail
