#pragma once
// The time of day at the beginning of output lines: TimeStamp formats it, LineStamper puts it in front of each line of
// a stream. Owned by WorkerStream. Pure but for the time zone of this machine.

#include <chrono>
#include <ctime>
#include <string>
#include <string_view>

namespace ddprun::agent {

class TimeStamp {
public:
    /// Returns `now` in local time with its distance to UTC, and a blank: "2026-03-01T12:00:03.042+01:00 ". It is valid
    /// until the next call.
    [[nodiscard]] std::string_view at(std::chrono::system_clock::time_point now);

private:
    void format_second(std::time_t second);

    std::time_t second_ = -1;  ///< of text_
    std::string text_;
};

class LineStamper {
public:
    /// Returns `bytes` with `stamp` in front of each line that begins in them.
    [[nodiscard]] std::string stamped(std::string_view bytes, std::string_view stamp);

private:
    bool at_line_start_ = true;
};

}  // namespace ddprun::agent
