#pragma once
// LogLimit: bounds what strangers can write into the log. Pure: time is passed in.

#include <cstdint>
#include <optional>
#include <utility>

#include "common/clock.hpp"

namespace ddprun::store {

class LogLimit {
public:
    static constexpr int kLines = 20;
    static constexpr std::chrono::seconds kWindow{10};

    /// Whether one more line may be written at `now` (kLines in every kWindow); if so, how many were left out before.
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

private:
    TimePoint window_start_;
    int lines_ = 0;
    std::uint64_t left_out_ = 0;
};

}  // namespace ddprun::store
