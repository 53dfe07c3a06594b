#pragma once
// Broadcasts buffers of any size in pieces, so that a large model does not need a staging area of its size at once.

#include <span>
#include <string_view>

#include "ddp/process_group.hpp"

namespace ddp::detail {

/// Collective. Every rank passes the same sizes and types. Returns when all ranks' `buffers` hold root's values. Throws
/// the group's error; the buffers are then unspecified on ranks other than root.
void broadcast_in_pieces(ProcessGroup& group, std::span<const Buffer> buffers, int root, std::string_view label);

}  // namespace ddp::detail
