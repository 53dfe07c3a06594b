#pragma once
// Builds the environment and the arguments of a worker (docs/environment.md). Used by WorkerSpecBuilder. Pure.

#include <optional>
#include <string>
#include <vector>

#include "common/endpoint.hpp"
#include "common/ids.hpp"
#include "common/system/process.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

/// The parts of a worker's environment that the assignment of its node does not contain.
struct WorkerSlot {
    LocalRank local_rank{};
    int slots = 1;    ///< workers on this node
    int threads = 1;  ///< OMP_NUM_THREADS, unless the user has set it
    std::string node_name;
    std::string run_id;
    std::string role;
    int role_rank = 0;
    int role_world_size = 1;
    int max_restarts = 0;    ///< of its role
    std::string error_file;  ///< where a Python worker may leave its exception
    /// Not empty: it gets LOCAL_RANK=0, and in each of these variables the device of its real local rank.
    std::vector<std::string> device_variables = {};
    std::optional<Endpoint> master = {};  ///< where the user named the store, if so: the daemon serves it there, too
    std::string local_address = {};       ///< at which other nodes reach the worker; empty: any that it finds
    std::string interface = {};           ///< by which they do ("eth0"); empty: unknown, or there are no others
    bool nccl_has_interface = false;      ///< NCCL's file of defaults names one
};

/// Returns RANK of a worker.
[[nodiscard]] Rank rank_of(const protocol::Assignment& assignment, LocalRank local_rank);

/// Returns MASTER_ADDR and MASTER_PORT: `named` by the user, else those assigned.
[[nodiscard]] Endpoint master_of(const protocol::Assignment& assignment, const std::optional<Endpoint>& named);

/// Returns `base` (the agent's own environment) with the variables of docs/environment.md set.
[[nodiscard]] Environment worker_environment(Environment base, const protocol::Assignment& assignment,
                                             const WorkerSlot& slot);

/// Returns `command` with ${local_rank} and $local_rank replaced in the arguments; any other '$' stays.
[[nodiscard]] std::vector<std::string> worker_command(std::vector<std::string> command, LocalRank local_rank);

/// Returns the environment as "NAME=value" strings.
[[nodiscard]] std::vector<std::string> to_strings(const Environment& environment);

}  // namespace ddprun::agent
