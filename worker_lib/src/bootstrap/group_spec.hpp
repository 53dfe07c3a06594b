#pragma once
// GroupSpec: the members of a group and the store through which they find each other. name_rank() names a rank in
// errors; operation/failure.hpp adds the group and the operation. A plain value: the group and its backend keep copies.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"
#include "ddp/error.hpp"
#include "ddp/store.hpp"

namespace ddp::detail {

class BackendImpl;

struct GroupSpec {
    std::string name;                    ///< for messages and the flight record: "reducer of world"
    std::string path;                    ///< unique in the job and generation, in all store keys; empty: as `name`
    int rank = 0;                        ///< of this process in this group
    std::vector<int> members;            ///< world ranks, by group rank
    std::vector<std::string> locations;  ///< "host a, pid 71", by group rank, for errors; empty: not known yet
    int node_rank = 0;                   ///< of this process; peers publish theirs through the store
    std::int64_t generation = 0;
    std::string session;    ///< Environment::session; empty: the generations of this job cannot be ordered
    std::string secret;     ///< Environment::secret; empty: other processes that read the store can connect
    int world_size = 1;     ///< worlds of different sizes may follow each other in one generation, see group_key()
    std::int64_t init = 1;  ///< the round in which the world met (init_rounds.hpp); each round has its own keys
    std::shared_ptr<Store> store;
    ddprun::Duration default_timeout{};
    ddprun::Duration init_timeout{};
    int device = 0;  ///< index of the CUDA device, on NCCL
    /// Makes the backend of the control group; null: the group has none, because its own backend takes host memory.
    std::unique_ptr<BackendImpl> (*make_control_backend)(const GroupSpec& spec) = nullptr;
    /// Shows in the flight record that the host of a rank of the job cannot be reached while the group is made; -1: it
    /// can again. May be empty.
    std::function<void(int rank)> note_unreachable;
};

[[nodiscard]] inline const std::string& path_of(const GroupSpec& spec) {
    return spec.path.empty() ? spec.name : spec.path;
}

/// Returns the form in which all errors name a rank: "rank 3 (host a, pid 71)", or "rank 3" if host and pid are not
/// known. If the rank differs from the global rank: "rank 1 (global rank 5, host a, pid 71)".
/// global_rank   in the job; -1: unknown
[[nodiscard]] std::string name_rank(int rank, int global_rank, std::string_view place);
/// The same with host and pid, as far as `spec` knows them.
[[nodiscard]] std::string name_rank(const GroupSpec& spec, int rank);
/// Returns the name of this process for texts that name its host elsewhere: "rank 3", "rank 1 (global rank 5)".
[[nodiscard]] std::string name_self(const GroupSpec& spec);

/// Returns Error{InvalidArgument} for a call that is wrong on this rank: "group 'world': rank 3 (host a, pid 71):
/// WRONG".
[[nodiscard]] Error refusal(const GroupSpec& spec, std::string_view wrong);

/// Names ranks: "rank 1 (host a, pid 71) and rank 3 (host b, pid 5)", or "ranks 1 and 3" where hosts are not known.
[[nodiscard]] std::string name_ranks(const GroupSpec& spec, const std::vector<int>& ranks);

/// Returns an id of this process's machine, or of the node that it emulates: boot id and node rank.
[[nodiscard]] std::string machine_of(const GroupSpec& spec);

}  // namespace ddp::detail
