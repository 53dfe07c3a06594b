#pragma once
// DelayedLine: a line for people that is worth saying only when what it tells of takes long: a wait, a stop. One
// thread.

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

    /// To be said after the delay, or at once when one of these lines was said since the last drop(): then what they
    /// tell of takes long already. The same line again is not said again.
    void set(std::string line) {
        if (line == line_) return;
        const bool pending = !line_.empty() && !said_;
        line_ = std::move(line);
        if (said_) {
            say();
        } else if (!pending) {
            timer_.expires_after(delay_);
            timer_.async_wait([this](const boost::system::error_code& error) {
                if (!error && !said_) say();  // an expiry from before a drop() may have been earlier
            });
        }
    }

    /// Says now what is still unsaid, and forgets it.
    void flush() {
        if (!line_.empty() && !said_) say();
        drop();
    }

    /// Nobody has to know any more.
    void drop() {
        line_.clear();
        said_ = false;
        timer_.cancel();
    }

private:
    void say() {
        if (line_.empty()) return;  // dropped when the timer had just expired
        said_ = true;
        spdlog::info("{}", line_);
    }

    std::chrono::milliseconds delay_;
    boost::asio::steady_timer timer_;
    std::string line_;
    bool said_ = false;
};

}  // namespace ddprun::agent
