#pragma once
// GroupRegistry: the watchdogs of all NCCL groups of this process, so that groups of one device fail together. Kernels
// of one group can hold up those of another, and the abort of its communicator. Any thread.

#include <vector>

#include "common/mutex.hpp"
#include "worker_lib/src/operation/failure.hpp"

namespace ddp::detail {

class Watchdog;

class GroupRegistry {
public:
    /// Returns the registry of this process. It is never destroyed: a program may end groups at its exit.
    [[nodiscard]] static GroupRegistry& of_process();

    void add(Watchdog& watchdog) EXCLUDES(mutex_);
    /// Afterwards the watchdog is not called any more. The caller holds no lock of it.
    void remove(const Watchdog& watchdog) EXCLUDES(mutex_);
    /// Passes a failure on to the other groups of the same device: see Watchdog::hear(). Starts their aborts, and waits
    /// for none. The caller holds no lock of a watchdog.
    void pass_on(const Failure& failure, const Watchdog& from) EXCLUDES(mutex_);

private:
    ddprun::Mutex mutex_;  // taken before a watchdog's, never after
    std::vector<Watchdog*> watchdogs_ GUARDED_BY(mutex_);
};

}  // namespace ddp::detail
