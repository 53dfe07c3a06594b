#pragma once
// DelayedLine: a status line that is printed only if the state that it describes (a wait, a stop) lasts. Used by
// StatusReporter; one thread.

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "common/clock.hpp"
#include "common/text/number.hpp"

namespace ddprun::agent {

class DelayedLine {
public:
    explicit DelayedLine(boost::asio::io_context& io, std::chrono::milliseconds delay = std::chrono::seconds(1))
        : delay_(delay), timer_(io) {}

    /// Prints `line` after the delay, or at once if a line was printed since the last drop(): the state lasts already.
    /// The same line is not printed twice. `until`: when the state ends at the latest; the printed line ends with the
    /// time that is left.
    void set(std::string line, std::optional<TimePoint> until = {}) {
        if (line == line_) return;
        const bool pending = !line_.empty() && !printed_;
        line_ = std::move(line);
        until_ = until;
        if (printed_) {
            print();
        } else if (!pending) {
            timer_.expires_after(delay_);
            timer_.async_wait([this](const boost::system::error_code& error) {
                if (!error && !printed_) print();  // an expiry from before a drop() may have been earlier
            });
        }
    }

    /// Forgets the line: its state is over.
    void drop() {
        line_.clear();
        printed_ = false;
        timer_.cancel();
    }

private:
    void print() {
        if (line_.empty()) return;  // dropped when the timer had just expired
        printed_ = true;
        const auto left = until_ ? std::max(*until_ - Clock::now(), Duration::zero()) : Duration::zero();
        spdlog::info("{}{}", line_, until_ ? fmt::format(", for {} at most", rounded_seconds_text(left)) : "");
    }

    std::chrono::milliseconds delay_;
    boost::asio::steady_timer timer_;
    std::string line_;
    std::optional<TimePoint> until_;
    bool printed_ = false;
};

}  // namespace ddprun::agent
