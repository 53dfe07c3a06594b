#pragma once
// The destruction of a group: at once or, if one of its own callbacks destroys it, after that callback has returned.

#include <memory>

#include "worker_lib/src/group/group_impl.hpp"

namespace ddp::detail {

/// Ends the group of a ProcessGroup that is destroyed or assigned to; null: nothing is to do. Any thread may call it.
/// If no thread or memory is left for the end, the operations in flight fail and the group's memory leaks.
void end_group(std::unique_ptr<GroupImpl> group) noexcept;

}  // namespace ddp::detail
