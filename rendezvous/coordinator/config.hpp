#pragma once
// Config: a job's settings from the daemon's command line. Numbers of nodes and restarts come from the nodes (Join).

#include <chrono>
#include <string>
#include <vector>

#include "common/clock.hpp"

namespace ddprun::coordinator {

struct Config {
    std::string run_id;
    std::string step;  ///< the name of the scheduler's job step, by which its nodes find the daemon; empty: none
    /// The hosts of that step, as the scheduler names them: those that have not joined are named; empty: unknown.
    std::vector<std::string> hosts = {};
    std::string session = {};  ///< identifies this daemon process, which cannot continue a job that another one began
    std::string worker_key = {};  ///< Welcome::worker_key
    std::chrono::milliseconds heartbeat_interval{500};
    std::chrono::milliseconds lost_after{3'000};      ///< silence after which a node is lost
    std::chrono::milliseconds reconnect_grace{750};   ///< time to reconnect after the agent's end has closed; no option
    std::chrono::milliseconds hold{30'000};           ///< for how long workers wait for a daemon that is silent
    std::chrono::milliseconds last_call{30'000};      ///< how long a round with MIN nodes waits for more, up to MAX
    std::chrono::milliseconds join_timeout{600'000};  ///< how long a round waits for MIN nodes
    std::chrono::milliseconds linger{10'000};  ///< after it without any agent, the daemon ends; ddprun passes its own
};

}  // namespace ddprun::coordinator
