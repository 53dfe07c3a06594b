#pragma once
// The entry point of the native CPU backend.

#include <memory>

#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/group/backend.hpp"

namespace ddp::detail {

/// Makes the native backend of a group. Collective over spec.members: returns when all of them are connected. Throws
/// Error{Timeout} naming the absent ranks, and as connect_members().
[[nodiscard]] std::unique_ptr<BackendImpl> make_native_backend(const GroupSpec& spec);

}  // namespace ddp::detail
