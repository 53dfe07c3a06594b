#pragma once
// DelayedLine: a status line that is printed only if the state that it describes (a wait, a stop) lasts. Used by
// StatusReporter; one thread.

#include <spdlog/spdlog.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <string>
#include <utility>

namespace ddprun::agent {

class DelayedLine {
public:
    explicit DelayedLine(boost::asio::io_context& io, std::chrono::milliseconds delay = std::chrono::seconds(1))
        : delay_(delay), timer_(io) {}

    /// Prints `line` after the delay, or at once if a line was printed since the last drop(): the state lasts already.
    /// The same line is not printed twice.
    void set(std::string line) {
        if (line == line_) return;
        const bool pending = !line_.empty() && !printed_;
        line_ = std::move(line);
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
        spdlog::info("{}", line_);
    }

    std::chrono::milliseconds delay_;
    boost::asio::steady_timer timer_;
    std::string line_;
    bool printed_ = false;
};

}  // namespace ddprun::agent
