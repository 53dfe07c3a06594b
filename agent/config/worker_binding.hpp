#pragma once
// WorkerBinding: the CPUs of one worker, which the launcher chooses (--numa-binding). Plain values.

#include <algorithm>
#include <set>

#include "common/system/cpu_set.hpp"

namespace ddprun::agent {

/// The CPUs on which one worker may run, their NUMA nodes, and the number of its threads.
struct WorkerBinding {
    CpuMask cpus;              ///< not empty
    std::set<int> numa_nodes;  ///< the NUMA nodes of these CPUs, by the kernel's numbers
    int threads = 1;           ///< OMP_NUM_THREADS: its share of these CPUs
    friend bool operator==(const WorkerBinding&, const WorkerBinding&) = default;
};

/// Returns OMP_NUM_THREADS of each of `workers` that share `cpus`.
[[nodiscard]] constexpr int threads_per_worker(int cpus, int workers) {
    return std::max(1, cpus / std::max(1, workers));
}

}  // namespace ddprun::agent
