#pragma once
// Makes the signals of the launcher of emulated nodes pollable. Main thread, one object at a time.

#include <csignal>
#include <optional>

#include "common/system/unique_fd.hpp"

namespace ddprun::launcher {

/// ClusterSignals: blocks the signals that are passed on to the nodes, and SIGCHLD, for as long as it lives. A hang-up
/// that was ignored (nohup) stays ignored.
class ClusterSignals {
public:
    /// Throws ErrorException when the system refuses a signalfd.
    ClusterSignals();
    ~ClusterSignals();
    ClusterSignals(const ClusterSignals&) = delete;
    ClusterSignals& operator=(const ClusterSignals&) = delete;

    /// Returns a descriptor that is readable when a signal waits.
    [[nodiscard]] int fd() const { return signals_.get(); }
    /// Takes the next signal that has arrived; nullopt: there is none. One SIGCHLD may stand for several children.
    std::optional<int> next();
    /// Restores the mask that this process was started with. Called in a child between fork and exec.
    void restore_mask() const { ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr); }

private:
    sigset_t mask_before_{};
    UniqueFd signals_;
};

}  // namespace ddprun::launcher
