#pragma once
// exchange_unique_id: passes rank 0's unique id to all members of a group through the store, before NCCL starts. NCCL's
// own bootstrap cannot name missing ranks, and leaving it half-way needs an abort. So every rank publishes its address
// in the store first, and rank 0 publishes the id when all ranks have.

#include <string>
#include <vector>

#include "worker_lib/src/group/backend.hpp"
#include "worker_lib/src/nccl/api.hpp"

namespace ddp::detail {

/// The result of exchange_unique_id().
struct UniqueIdExchange {
    ncclUniqueId id;                   ///< rank 0's
    std::vector<std::string> records;  ///< every rank's Peers::own_record(), by rank
};

/// Returns the id and the records once all ranks have arrived. Collective over spec.members, once per group_key().
/// Throws Error{Timeout} naming the absent ranks when `deadline` passes, Error{System} when rank 0 could not make an
/// id.
[[nodiscard]] UniqueIdExchange exchange_unique_id(const NcclApi& nccl, const GroupSpec& spec,
                                                  ddprun::TimePoint deadline);

/// Returns this rank as errors of this backend name it: "rank 1 (host a, pid 71) of 4 in group 'world'".
[[nodiscard]] std::string own_rank_text(const GroupSpec& spec);

}  // namespace ddp::detail
