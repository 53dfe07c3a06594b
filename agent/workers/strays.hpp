#pragma once
// Strays: finds, reaps and signals the descendants of workers that lost their parent and became children of this
// process, a child subreaper. Owned by WorkerProcesses; one thread.

#include <sys/types.h>

#include <set>
#include <vector>

namespace ddprun::agent {

/// Makes descendants that lose their parent children of this process instead of init. Call once, before the first
/// worker.
void adopt_strays();

class Strays {
public:
    /// Returns every child of this process that is not in `workers`, which is sorted.
    [[nodiscard]] static std::vector<pid_t> list(const std::vector<pid_t>& workers);

    /// Sends `signal` to every stray with the next sweep(), and to each new one with a later sweep.
    void set_signal(int signal);
    /// Reaps the strays that have ended and signals those that have not got the signal yet. `workers`: sorted.
    void sweep(const std::vector<pid_t>& workers);

private:
    [[nodiscard]] int signal_for(pid_t stray, const std::vector<pid_t>& workers) const;

    int signal_ = 0;             ///< 0: none
    std::set<pid_t> signalled_;  ///< strays that got `signal_`
};

}  // namespace ddprun::agent
