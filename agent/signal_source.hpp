#pragma once
// SignalSource: chooses the signals of this process that stop the job and those that are forwarded to the workers, and
// turns each one that arrives into an event of the agent. Owned by EventSources; one thread.

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <array>
#include <vector>

#include "agent/event_queue.hpp"
#include "common/clock.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun::agent {

/// A signal and the time at which its handler ran.
struct SignalArrival {
    int signal;
    Clock::rep at;
};

/// It has handlers of its own instead of a boost::asio::signal_set, which does not report when a signal arrived: while
/// many workers are started, the loop takes signals late, and two that came a second apart would look like one.
class SignalSource {
public:
    /// `events` outlives this object. INT, TERM, QUIT, HUP and the signals of `handled` stop the job. USR1 and USR2,
    /// unless they are in `handled`, are forwarded to the workers. TSTP and CONT suspend and continue them. A hang-up
    /// that was ignored (nohup) stays ignored, and so does TSTP.
    /// Unblocks these signals. Throws ErrorException if the system refuses a pipe. One object at a time.
    SignalSource(boost::asio::io_context& io, EventQueue& events, const std::vector<int>& handled);
    ~SignalSource();
    SignalSource(const SignalSource&) = delete;
    SignalSource& operator=(const SignalSource&) = delete;

    /// Pushes no more events: from here on signals wait for end_on_stop_signal().
    void close();

private:
    void push_next();
    [[nodiscard]] Happening event_of(int signal) const;

    EventQueue& events_;
    std::vector<int> stop_;
    UniqueFd from_handler_;
    boost::asio::posix::stream_descriptor arrivals_;
    std::array<SignalArrival, 16> buffer_{};
};

// The signals of a job wait where they could neither be handled nor end this process without harm: from the fork of the
// guard until the agent has its handlers, and while the last files are closed. Main thread.

/// Blocks all signals that a SignalSource takes, for work that takes a bounded time and should not be cut short.
void hold_stop_signals();

/// Makes INT, TERM, QUIT and HUP, including those that were blocked, end this process at once with `exit_code`: at the
/// end of a job only its output is still being written, and the outcome is known. USR1 and USR2, which were for the
/// workers, do nothing. A hang-up that was ignored (nohup) stays ignored.
void end_on_stop_signal(int exit_code);

}  // namespace ddprun::agent
