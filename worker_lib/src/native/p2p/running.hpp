#pragma once
// RunningMutex: the lock of one P2p. The thread that makes progress holds it, and it guards the peers, the works and
// the engine (see Scheduler, which owns it). Those parts do not know the mutex. Their annotations name kRunning, which
// stands for it.

#include <mutex>

#include "common/thread_annotations.hpp"
#include "worker_lib/src/tuning/light_mutex.hpp"

namespace ddp::detail::p2p {

/// Stands for P2p's lock in annotations. It is one for all groups, so a lock of the wrong group is not noticed.
class CAPABILITY("P2p's lock") RunningRole {};
inline constexpr RunningRole kRunning;

/// The bodies are not checked: the analysis knows kRunning by the declarations only.
class RunningMutex {
public:
    void lock() ACQUIRE(kRunning) NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }
    [[nodiscard]] bool try_lock() TRY_ACQUIRE(true, kRunning) NO_THREAD_SAFETY_ANALYSIS { return mutex_.try_lock(); }
    void unlock() RELEASE(kRunning) NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }

private:
    LightMutex mutex_;
};

/// Holds P2p's lock until its end, except between unlock() and lock().
class SCOPED_CAPABILITY Running {
public:
    explicit Running(RunningMutex& mutex) ACQUIRE(kRunning) : lock_(mutex) {}
    /// Takes over a mutex that the caller has locked by try_lock().
    Running(RunningMutex& mutex, std::adopt_lock_t adopted) REQUIRES(kRunning) : lock_(mutex, adopted) {}
    ~Running() RELEASE() {}
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

    void lock() ACQUIRE(kRunning) NO_THREAD_SAFETY_ANALYSIS { lock_.lock(); }
    void unlock() RELEASE(kRunning) NO_THREAD_SAFETY_ANALYSIS { lock_.unlock(); }

private:
    std::unique_lock<RunningMutex> lock_;
};

}  // namespace ddp::detail::p2p
