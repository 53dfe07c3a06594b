#pragma once
// A job of very many nodes: start, the death of one worker, the next group. It measures the real state machines and
// encoder in a model of the daemon's one thread and its network; nothing else fails.

#include <chrono>
#include <string>

namespace ddprun::sim {

struct LargeJobTimes {
    std::chrono::microseconds to_last_stop;   ///< from the worker's death until the last node has its Abort
    std::chrono::microseconds to_last_start;  ///< and until the last node has the next Assignment
    std::chrono::milliseconds cpu_of_joins;
    std::chrono::milliseconds cpu;  ///< of the whole run
};

/// Returns the assumptions of the model in one line.
[[nodiscard]] std::string large_job_model();

/// Runs the job, with 1 to kMaxNodes nodes. Throws std::runtime_error if the coordinator does anything else than stop
/// every node once and start it again.
[[nodiscard]] LargeJobTimes run_large_job(int nodes);

}  // namespace ddprun::sim
