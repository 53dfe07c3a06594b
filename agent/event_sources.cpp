#include "agent/event_sources.hpp"

#include <boost/asio/buffer.hpp>

namespace ddprun::agent {

namespace asio = boost::asio;
using boost::system::error_code;

EventSources::EventSources(asio::io_context& io, EventQueue& events, AgentConfig& config)
    : events_(events),
      signals_(io, events, config.handled_signals),
      guard_(io),
      deadline_(io),
      stall_timer_(io),
      time_limit_(config.time_limit),
      time_limit_timer_(io) {
    if (config.guard_pipe) guard_.assign(config.guard_pipe.release());
}

void EventSources::start(std::chrono::nanoseconds stall_interval) {
    stall_interval_ = stall_interval;
    watch_guard();
    wait_for_stall_check();
    wait_for_time_limit();
}

void EventSources::wait_for_time_limit() {
    if (!time_limit_) return;
    time_limit_timer_.expires_at(time_limit_->notice_at);
    time_limit_timer_.async_wait([this](const error_code& error) {
        if (!error) events_.push(TimeLimitNear{time_limit_->why});
    });
}

void EventSources::watch_guard() {
    if (!guard_.is_open()) return;
    guard_.async_read_some(asio::buffer(guard_byte_), [this](const error_code& error, std::size_t) {
        if (error != asio::error::operation_aborted) events_.push(GuardLost{});
    });
}

void EventSources::arm_deadline(const std::optional<TimePoint>& deadline) {
    if (!deadline) {
        deadline_.cancel();
    } else if (deadline_.expiry() != *deadline) {
        deadline_.expires_at(*deadline);
        deadline_.async_wait([this](const error_code& error) {
            if (!error) events_.push(Tick{});
        });
    }
}

void EventSources::wait_for_stall_check() {
    stall_timer_.expires_after(stall_interval_);
    stall_timer_.async_wait([this](const error_code& error) {
        if (error) return;  // stopped
        events_.push(StallCheckDue{});
        wait_for_stall_check();
    });
}

}  // namespace ddprun::agent
