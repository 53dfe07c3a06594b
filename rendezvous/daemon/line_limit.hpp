#pragma once
// LineLimit: bounds what strangers can write into the daemon's log. Pure: time is passed in.

#include "common/clock.hpp"

namespace ddprun::daemon {

class LineLimit {
public:
    static constexpr int kLines = 20;
    static constexpr std::chrono::seconds kWindow{10};

    /// Whether one more line may be written at `now`: kLines in every kWindow.
    [[nodiscard]] bool admits(TimePoint now) {
        if (now - window_start_ >= kWindow) {
            window_start_ = now;
            lines_ = 0;
        }
        return ++lines_ <= kLines;
    }
    /// The line just admitted is the last one of its window, and should say so.
    [[nodiscard]] bool last() const { return lines_ == kLines; }

private:
    TimePoint window_start_;
    int lines_ = 0;
};

}  // namespace ddprun::daemon
