#pragma once
// How the members of a group meet in the store before NCCL starts. NCCL's own meeting place cannot say who is missing,
// and leaving it half-way needs an abort; so everybody says where it is in the store first, and rank 0 publishes the
// unique id there.

#include <string>
#include <vector>

#include "worker_lib/src/backend.hpp"
#include "worker_lib/src/nccl/nccl_api.hpp"

namespace ddp::detail {

struct Met {
    ncclUniqueId id;                   ///< rank 0's
    std::vector<std::string> records;  ///< everybody's Peers::own_record(), by rank
};

/// Collective over spec.members: returns once all have come. Once per group_key().
/// Throws Error{Timeout} naming the absent ranks when `deadline` passes, Error{System} when rank 0 could not make an
/// id.
[[nodiscard]] Met meet(const NcclApi& nccl, const GroupSpec& spec, ddprun::TimePoint deadline);

/// "rank 1 (host a, pid 71) of 4 in group 'world'": how errors of this backend name the place where they happened.
[[nodiscard]] std::string place_of(const GroupSpec& spec);

}  // namespace ddp::detail
