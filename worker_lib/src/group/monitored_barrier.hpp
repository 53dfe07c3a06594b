#pragma once
// monitored_barrier(): a barrier over the store that ends with one verdict on all ranks: all arrived, or these did not.
// Called by GroupImpl on the caller's thread.

#include <cstdint>
#include <string_view>

#include "worker_lib/src/group/backend.hpp"

namespace ddp::detail {

/// Passes the barrier, the `number`th of the group, with all ranks. Throws the verdict if they have not arrived within
/// `timeout`: Error{Timeout}, or Error{PeerLost} if a rank is lost.
/// where   the caller's name of the place; empty: none
void pass_monitored_barrier(const GroupSpec& spec, const BackendImpl& backend, std::uint64_t number,
                            std::string_view where, ddprun::Duration timeout);

}  // namespace ddp::detail
