#pragma once
// SignalSource: the signals that this process gets, as events of the agent. One thread.

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <vector>

#include "agent/event_queue.hpp"

namespace ddprun::agent {

class SignalSource {
public:
    /// `events` outlives this object. INT, TERM, QUIT, HUP and those of `drain` stop the job: the workers get a signal
    /// of `drain` itself, as torchrun's do, and SIGTERM in place of any other. What is left of USR1 and USR2 is for the
    /// workers. A hang-up that was ignored (nohup) stays ignored.
    SignalSource(boost::asio::io_context& io, EventQueue& events, const std::vector<int>& drain);

    /// No more events: from here on signals wait for last_signals.hpp.
    void close();

private:
    boost::asio::signal_set stop_;
    boost::asio::signal_set notify_;
};

}  // namespace ddprun::agent
