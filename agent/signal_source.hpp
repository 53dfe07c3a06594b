#pragma once
// SignalSource: chooses the signals of this process that stop the job and those that are forwarded to the workers, and
// turns each one that arrives into an event of the agent. Owned by EventSources; one thread.

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <vector>

#include "agent/event_queue.hpp"

namespace ddprun::agent {

class SignalSource {
public:
    /// `events` outlives this object. INT, TERM, QUIT, HUP and the signals of `drain` stop the job: the workers get a
    /// signal of `drain` itself, as torchrun's do, and SIGTERM in place of any other. USR1 and USR2, unless they are in
    /// `drain`, are forwarded to the workers. A hang-up that was ignored (nohup) stays ignored.
    SignalSource(boost::asio::io_context& io, EventQueue& events, const std::vector<int>& drain);

    /// Pushes no more events: from here on signals wait for end_on_stop_signal().
    void close();

private:
    boost::asio::signal_set stop_;
    boost::asio::signal_set notify_;
};

// At the end of a job only its output is still being written. The outcome is known by then, so a signal changes how
// long that takes, and never the exit code. Main thread.

/// Blocks stop and notify signals, for work that takes a bounded time and should not be cut short.
void hold_stop_signals();

/// Makes INT, TERM, QUIT and HUP, including those that were blocked, end this process at once with `exit_code`. USR1
/// and USR2, which were for the workers, do nothing. A hang-up that was ignored (nohup) stays ignored.
void end_on_stop_signal(int exit_code);

}  // namespace ddprun::agent
