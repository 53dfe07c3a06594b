#pragma once
// Broadcasts buffers of any size in pieces, so that a large model does not need a staging area of its size at once.

#include <span>
#include <string_view>

#include "ddp/process_group.hpp"

namespace ddp::detail {

/// Collective. Every rank passes the same sizes and types. Returns when all ranks' `buffers` hold root's values, those
/// in device memory, too. Throws the group's error; the buffers are then unspecified on ranks other than root.
/// stream   on which the buffers in device memory are ready
void broadcast_in_pieces(ProcessGroup& group, std::span<const Buffer> buffers, int root, std::string_view label,
                         Stream stream = {});

}  // namespace ddp::detail
