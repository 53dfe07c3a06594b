#pragma once
// Mutex, Lock and Condition: std::mutex and what goes with it, annotated for clang's analysis (the standard library's
// are not). They cost what those cost.

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

/// A condition variable. Waits give the mutex back meanwhile, and may return without a reason: callers loop.
class Condition {
public:
    void wait(Mutex& mutex) REQUIRES(mutex) {
        std::unique_lock lock(mutex.mutex_, std::adopt_lock);
        changed_.wait(lock);
        lock.release();  // it stays the caller's
    }
    /// False: that long has passed.
    bool wait_for(Mutex& mutex, std::chrono::nanoseconds timeout) REQUIRES(mutex) {
        std::unique_lock lock(mutex.mutex_, std::adopt_lock);
        const bool in_time = changed_.wait_for(lock, timeout) == std::cv_status::no_timeout;
        lock.release();
        return in_time;
    }
    /// As wait_for(), until `deadline`.
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
