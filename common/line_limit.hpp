#pragma once
// LineLimit: bounds the log lines that unauthenticated peers can cause. Pure: the caller passes the time. Single owner.

#include <cstdint>
#include <optional>
#include <utility>

#include "common/clock.hpp"

namespace ddprun {

class LineLimit {
public:
    static constexpr int kLines = 20;
    static constexpr std::chrono::seconds kWindow{10};

    /// Returns nothing when kLines have been written in this kWindow; otherwise the number of lines left out since the
    /// last one that was admitted.
    [[nodiscard]] std::optional<std::uint64_t> admit(TimePoint now) {
        if (now - window_start_ >= kWindow) {
            window_start_ = now;
            lines_ = 0;
        }
        if (lines_ == kLines) {
            ++left_out_;
            return std::nullopt;
        }
        ++lines_;
        return std::exchange(left_out_, 0);
    }
    /// Returns whether the line just admitted is the last one of its window, and should report that.
    [[nodiscard]] bool last() const { return lines_ == kLines; }

private:
    TimePoint window_start_;
    int lines_ = 0;
    std::uint64_t left_out_ = 0;
};

}  // namespace ddprun
