#pragma once
// --local-nodes: every node of the job as processes of this machine, below one launcher. Each child is a complete
// ddprun, so that what happens to one (a kill, a crash) is what would happen to a real node. Main thread only.

#include <chrono>
#include <string>
#include <vector>

#include "common/endpoint.hpp"
#include "common/exit_status.hpp"

namespace ddprun::launcher {

inline constexpr int kMaxLocalNodes = 1024;

struct LocalCluster {
    std::vector<std::string> arguments;  ///< of this ddprun, without argv[0]: every node reads the same ones
    int nodes = 1;
    int min_nodes = 1;  ///< with fewer the job cannot go on, and no other machine will send one
    int workers_per_node = 1;
    std::string program_name;  ///< for messages
    Endpoint endpoint;         ///< of the daemon
    int daemon_lifeline = -1;  ///< a descriptor that reads end-of-file when the daemon is gone; not owned
    std::chrono::milliseconds grace{30'000};
    std::vector<int> drain_signals;  ///< end the job beside INT, TERM, HUP and QUIT; workers get them
};

/// Starts the nodes, passes signals on, prints once how the job ended, and returns the job's exit code when no process
/// of it is left. Throws ErrorException when the system refuses a process; what was started is stopped then.
[[nodiscard]] int run_local_cluster(const LocalCluster& cluster);

/// "node0" for the first.
[[nodiscard]] std::string local_node_name(int index);

/// Pure: what the last node left that left something; each text ends with a zero byte. Empty when nobody did.
[[nodiscard]] std::string last_words_of(const std::string& texts);

/// Pure: the job's exit code, from how its nodes ended, in the order in which they did. The last one that ended by
/// itself knows the verdict: a node that was killed, or left early, does not speak for the others. Never called without
/// a node.
[[nodiscard]] int cluster_exit_code(const std::vector<ExitStatus>& ends);

}  // namespace ddprun::launcher
