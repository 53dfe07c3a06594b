#pragma once
// MachinePauses: measures how long this machine stood still. A busy machine of few cores may run a process a second or
// more too late, and a test of a time limit must not report that as a fault.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

/// Owns a thread that sleeps for 20 ms again and again, and adds up by how much it wakes too late. Any thread may ask.
class MachinePauses {
public:
    MachinePauses()
        : thread_([this](const std::stop_token& stop) {
              using Clock = std::chrono::steady_clock;
              while (!stop.stop_requested()) {
                  const Clock::time_point begun = Clock::now();
                  std::this_thread::sleep_for(kSleep);
                  const auto late =
                      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun - kSleep);
                  if (late > kNoticed) sum_ms_ += late.count();
              }
          }) {}

    /// Returns the sum of all pauses so far; shorter ones than 0.2 s do not count.
    [[nodiscard]] std::chrono::milliseconds sum() const { return std::chrono::milliseconds(sum_ms_.load()); }

private:
    static constexpr std::chrono::milliseconds kSleep{20};
    static constexpr std::chrono::milliseconds kNoticed{200};

    std::atomic<std::int64_t> sum_ms_{0};
    std::jthread thread_;
};
