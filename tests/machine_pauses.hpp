#pragma once
// MachinePauses: measures how long this machine stood still. A busy machine of few cores may run a process a second or
// more too late, and a test of a time limit must not report that as a fault.

#include <chrono>
#include <mutex>
#include <thread>

/// Owns a thread that sleeps for 20 ms again and again, and adds up by how much it wakes too late. Any thread may ask.
class MachinePauses {
public:
    MachinePauses()
        : thread_([this](const std::stop_token& stop) {
              while (!stop.stop_requested()) {
                  std::this_thread::sleep_for(kSleep);
                  const std::lock_guard lock(mutex_);
                  sum_ += latest();
                  begun_ = Clock::now();
              }
          }) {}

    /// Returns the sum of all pauses so far, with one that the thread has not noticed yet. Shorter ones than 0.2 s do
    /// not count.
    [[nodiscard]] std::chrono::milliseconds sum() const {
        const std::lock_guard lock(mutex_);
        return std::chrono::duration_cast<std::chrono::milliseconds>(sum_ + latest());
    }

private:
    using Clock = std::chrono::steady_clock;

    /// Returns by how much the thread is late. The caller holds the mutex.
    [[nodiscard]] Clock::duration latest() const {
        const Clock::duration late = Clock::now() - begun_ - kSleep;
        return late > kNoticed ? late : Clock::duration::zero();
    }

    static constexpr std::chrono::milliseconds kSleep{20};
    static constexpr std::chrono::milliseconds kNoticed{200};

    mutable std::mutex mutex_;
    Clock::time_point begun_ = Clock::now();  ///< of the latest sleep
    Clock::duration sum_{};
    std::jthread thread_;
};
