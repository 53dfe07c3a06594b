#pragma once
// The signals of the launcher of emulated nodes, as something to poll for. Main thread, one at a time.

#include <csignal>
#include <optional>

#include "common/system/unique_fd.hpp"

namespace ddprun::launcher {

/// Blocks the signals that are passed on to the nodes, and SIGCHLD, for as long as it lives. A hang-up that was ignored
/// (nohup) stays ignored.
class ClusterSignals {
public:
    /// Throws ErrorException when the system refuses a signalfd.
    ClusterSignals();
    ~ClusterSignals();
    ClusterSignals(const ClusterSignals&) = delete;
    ClusterSignals& operator=(const ClusterSignals&) = delete;

    /// Readable when next() has something to return.
    [[nodiscard]] int fd() const { return signals_.get(); }
    /// Takes the next signal that has arrived; nullopt: there is none. One SIGCHLD may stand for several children.
    std::optional<int> next();
    /// In a child between fork and exec: restores the mask that this process was started with.
    void restore_mask() const { ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr); }

private:
    sigset_t mask_before_{};
    UniqueFd signals_;
};

}  // namespace ddprun::launcher
