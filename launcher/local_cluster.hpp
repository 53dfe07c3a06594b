#pragma once
// Implements --local-nodes: runs every node of the job as processes of this machine, below one launcher. Each child is
// a complete ddprun, so that a kill or crash has the consequences that it has for a real node. Called by launch(); main
// thread only.

#include <boost/json.hpp>

#include <chrono>
#include <string>
#include <vector>

#include "agent/guard/keeper.hpp"
#include "agent/output/console.hpp"
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
    agent::ProgramFile guard_program;   ///< whose keepers end by themselves (keeper.hpp)
    Endpoint endpoint;                  ///< of the daemon
    int daemon_lifeline = -1;           ///< a descriptor that reads end-of-file when the daemon has ended; not owned
    std::chrono::milliseconds grace{};  ///< of the workers on every node
    std::vector<int> handled_signals;   ///< end the job, beside INT, TERM, HUP and QUIT
    agent::Console& console;            ///< for messages; the nodes write to the same one
    int open_lines_fd = -1;             ///< of its SharedLines; not owned
    bool timestamps = false;            ///< the text about the job's end begins its lines with the time of day
};

/// How a job of emulated nodes has ended.
struct ClusterEnd {
    int exit_code = 0;
    std::string reason = {};                   ///< found by the launcher; empty: the reason is in the nodes' report
    std::string hint = {};                     ///< a sentence without its full stop
    boost::json::object report = {};           ///< of --report, that of one node; empty: none has left one
    int stop_signal = 0;                       ///< from outside, that has ended it or came while it ended; 0: none
    std::chrono::milliseconds console_full{};  ///< the time for which the console has taken nothing until now
};

/// Starts the nodes, passes signals on to them, and returns when no process of the job is left; the text about its end
/// is in the console's queue then. Never waits for the console. Throws ErrorException when the system refuses a
/// process; started nodes are killed then.
[[nodiscard]] ClusterEnd run_local_cluster(const LocalCluster& cluster);

/// Returns the name of an emulated node: "node0" for the first.
[[nodiscard]] std::string local_node_name(int index);

/// Returns the job's exit code: that of the last node that exited by itself, because it knows the verdict, or of the
/// last one if all were killed. `ends`, not empty: the exit statuses in the order in which the nodes ended. Pure.
[[nodiscard]] int cluster_exit_code(const std::vector<ExitStatus>& ends);

}  // namespace ddprun::launcher
