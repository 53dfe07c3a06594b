#pragma once
// SignalSource: the signals that this process gets, as events of the agent. One thread.

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "agent/event_queue.hpp"

namespace ddprun::agent {

class SignalSource {
public:
    /// `events` outlives this object. A hang-up that was ignored (nohup) stays ignored.
    SignalSource(boost::asio::io_context& io, EventQueue& events);

    /// No more events: from here on signals wait for last_signals.hpp.
    void close();

private:
    boost::asio::signal_set stop_;
    boost::asio::signal_set notify_;
};

}  // namespace ddprun::agent
