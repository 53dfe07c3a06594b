#pragma once
// exchange_unique_ids: passes the unique ids of a group to all of its members through the store, before NCCL starts.
// NCCL's own bootstrap cannot name missing ranks, and leaving it half-way needs an abort. So every rank publishes its
// address in the store first, and the ranks that make the ids publish them when all ranks have.

#include <string>
#include <vector>

#include "worker_lib/src/group/backend.hpp"
#include "worker_lib/src/nccl/api.hpp"

namespace ddp::detail {

/// Returns how many unique ids a group needs: NCCL connects the ranks in as many parts at the same time. One for 128
/// ranks, as NCCL recommends (https://github.com/pytorch/pytorch/pull/136789); always one in NCCL before 2.23.4.
[[nodiscard]] int unique_id_count(const NcclApi& nccl, int ranks);
/// Returns the rank that makes the unique id with that index: the first of those that NCCL connects by it.
[[nodiscard]] int maker_of_id(int index, int ids, int ranks);

/// The result of exchange_unique_ids().
struct UniqueIdExchange {
    std::vector<ncclUniqueId> ids;     ///< unique_id_count() of them
    std::vector<std::string> records;  ///< every rank's Peers::own_record(), by rank
};

/// Returns the ids and the records once all ranks have arrived. Collective over spec.members, once per group_key().
/// Throws Error{Timeout} naming the absent ranks when `deadline` passes, Error{System} when a rank could not make an
/// id.
[[nodiscard]] UniqueIdExchange exchange_unique_ids(const NcclApi& nccl, const GroupSpec& spec,
                                                   ddprun::TimePoint deadline);

/// Returns this rank as errors of this backend name it: "rank 1 (host a, pid 71) of 4 in group 'world'".
[[nodiscard]] std::string own_rank_text(const GroupSpec& spec);

}  // namespace ddp::detail
