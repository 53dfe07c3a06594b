#pragma once
// Mutex, Lock and Condition: wrappers of std::mutex and its companions that have the annotations of clang's
// thread-safety analysis, which the standard library lacks. They add no cost.

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "common/thread_annotations.hpp"

namespace ddprun {

class CAPABILITY("mutex") Mutex {
public:
    void lock() ACQUIRE() { mutex_.lock(); }
    void unlock() RELEASE() { mutex_.unlock(); }
    [[nodiscard]] bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }

private:
    friend class Condition;

    std::mutex mutex_;
};

/// Holds a mutex as long as it lives. `Lockable` is any class that is a CAPABILITY.
template <typename Lockable>
class SCOPED_CAPABILITY Lock {
public:
    explicit Lock(Lockable& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
    /// Takes over a mutex that the caller has locked, for example by try_lock().
    Lock(Lockable& mutex, std::adopt_lock_t) REQUIRES(mutex) : mutex_(mutex) {}
    ~Lock() RELEASE() { mutex_.unlock(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

private:
    Lockable& mutex_;
};

/// A condition variable. A wait releases the mutex while it sleeps and may wake spuriously, so callers loop.
class Condition {
public:
    void wait(Mutex& mutex) REQUIRES(mutex) {
        // That of std::condition_variable needs the libstdc++ of g++ 12, where a trainer may run with that of g++ 11.
        ::pthread_cond_wait(changed_.native_handle(), mutex.mutex_.native_handle());
    }
    /// Waits. Returns false if `timeout` has passed.
    bool wait_for(Mutex& mutex, std::chrono::nanoseconds timeout) REQUIRES(mutex) {
        std::unique_lock lock(mutex.mutex_, std::adopt_lock);
        const bool in_time = changed_.wait_for(lock, timeout) == std::cv_status::no_timeout;
        lock.release();  // the caller keeps the mutex
        return in_time;
    }
    /// Waits. Returns false if `deadline` has passed.
    template <typename Clock, typename Duration>
    bool wait_until(Mutex& mutex, std::chrono::time_point<Clock, Duration> deadline) REQUIRES(mutex) {
        std::unique_lock lock(mutex.mutex_, std::adopt_lock);
        const bool in_time = changed_.wait_until(lock, deadline) == std::cv_status::no_timeout;
        lock.release();
        return in_time;
    }
    void notify_one() { changed_.notify_one(); }
    void notify_all() { changed_.notify_all(); }

private:
    std::condition_variable changed_;
};

}  // namespace ddprun
