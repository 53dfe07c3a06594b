#pragma once
// EventSources: turns signals, the loss of the guard and expired timers into events of the agent. One thread.

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <chrono>
#include <optional>

#include "agent/config/agent_config.hpp"
#include "agent/event_queue.hpp"
#include "agent/signal_source.hpp"
#include "common/clock.hpp"

namespace ddprun::agent {

class EventSources {
public:
    /// `events` outlives this object. Takes the guard's pipe out of `config`; without one the guard is not watched.
    EventSources(boost::asio::io_context& io, EventQueue& events, AgentConfig& config);

    /// Begins to watch the guard and the time limit, and pushes StallCheckDue every `stall_interval`.
    void start(std::chrono::nanoseconds stall_interval);
    /// Pushes a Tick at `deadline`, in place of an earlier deadline; empty: pushes none.
    void arm_deadline(const std::optional<TimePoint>& deadline);
    void stop_timers() {
        stall_timer_.cancel();
        time_limit_timer_.cancel();
    }
    /// Stops turning signals into events; they then wait for end_on_stop_signal().
    void close_signals() { signals_.close(); }

private:
    void watch_guard();
    void wait_for_stall_check();
    void wait_for_time_limit();

    EventQueue& events_;
    SignalSource signals_;
    boost::asio::posix::stream_descriptor guard_;
    std::array<char, 1> guard_byte_{};
    boost::asio::steady_timer deadline_;
    boost::asio::steady_timer stall_timer_;
    std::optional<TimeLimit> time_limit_;
    boost::asio::steady_timer time_limit_timer_;
    std::chrono::nanoseconds stall_interval_{};
};

}  // namespace ddprun::agent
