#pragma once
// Implements --local-nodes: runs every node of the job as processes of this machine, below one launcher. Each child is
// a complete ddprun, so that a kill or crash has the consequences that it has for a real node. Called by launch(); main
// thread only.

#include <chrono>
#include <string>
#include <vector>

#include "common/endpoint.hpp"
#include "common/system/exit_status.hpp"

namespace ddprun::launcher {

inline constexpr int kMaxLocalNodes = 1024;

/// The emulated nodes to run.
struct LocalCluster {
    std::vector<std::string> arguments;  ///< of this ddprun, without argv[0]: every node parses the same ones
    int nodes = 1;
    int min_nodes = 1;  ///< with fewer the job cannot go on: a lost emulated node is not replaced
    int workers_per_node = 1;
    std::string program_name;           ///< for messages
    std::string guard_program;          ///< whose keepers end by themselves (keeper.hpp)
    Endpoint endpoint;                  ///< of the daemon
    int daemon_lifeline = -1;           ///< a descriptor that reads end-of-file when the daemon has ended; not owned
    std::chrono::milliseconds grace{};  ///< of the workers on every node
    std::vector<int> handled_signals;   ///< end the job, beside INT, TERM, HUP and QUIT
};

/// Starts the nodes, passes signals on to them, prints once how the job ended, and returns the job's exit code when no
/// process of it is left. Throws ErrorException when the system refuses a process; started nodes are killed then.
[[nodiscard]] int run_local_cluster(const LocalCluster& cluster);

/// Returns the name of an emulated node: "node0" for the first.
[[nodiscard]] std::string local_node_name(int index);

/// Returns the job's exit code: that of the last node that exited by itself, because it knows the verdict, or of the
/// last one if all were killed. `ends`, not empty: the exit statuses in the order in which the nodes ended. Pure.
[[nodiscard]] int cluster_exit_code(const std::vector<ExitStatus>& ends);

}  // namespace ddprun::launcher
