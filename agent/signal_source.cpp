#include "agent/signal_source.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "common/system/process.hpp"
#include "common/system/signals.hpp"

namespace ddprun::agent {
namespace {

constexpr std::array kStop{SIGINT, SIGTERM, SIGQUIT, SIGHUP};
constexpr std::array kNotify{SIGUSR1, SIGUSR2};
constexpr std::array kJobControl{SIGTSTP, SIGCONT};

// Read by signal handlers.
volatile std::sig_atomic_t final_code = 0;
volatile std::sig_atomic_t arrivals_fd = -1;

void end_now(int) { ::_exit(final_code); }

void note_arrival(int signal) {
    const int errno_before = errno;
    const SignalArrival arrival{signal, Clock::now().time_since_epoch().count()};
    // Atomic, and never blocks: hundreds of signals that the loop has not taken yet say no more than the first ones.
    [[maybe_unused]] const ssize_t ignored = ::write(arrivals_fd, &arrival, sizeof arrival);
    errno = errno_before;
}

template <typename Signals>
void change_mask(int how, const Signals& signals) {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int signal : signals) ::sigaddset(&set, signal);
    ::sigprocmask(how, &set, nullptr);
}

void handle(int signal) {
    struct sigaction action {};
    action.sa_handler = note_arrival;
    action.sa_flags = SA_RESTART;
    ::sigfillset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
    change_mask(SIG_UNBLOCK, std::array{signal});
}

/// Returns a pipe whose write end the handlers may use: writing to it never blocks.
Pipe make_arrivals_pipe() {
    Pipe pipe = make_pipe("for signals").value();
    ::fcntl(pipe.write_end.get(), F_SETFL, O_NONBLOCK);
    return pipe;
}

}  // namespace

SignalSource::SignalSource(boost::asio::io_context& io, EventQueue& events, const std::vector<int>& handled)
    : events_(events), stop_(kStop.begin(), kStop.end()), arrivals_(io) {
    Pipe pipe = make_arrivals_pipe();
    from_handler_ = std::move(pipe.write_end);
    arrivals_.assign(pipe.read_end.release());
    arrivals_fd = from_handler_.get();
    push_next();
    for (const int signal : kNotify) {
        if (std::ranges::find(handled, signal) != handled.end()) stop_.push_back(signal);
        handle(signal);
    }
    for (const int signal : kStop) {
        const bool nohup = signal == SIGHUP && is_ignored(SIGHUP);
        if (!nohup) handle(signal);
    }
    if (is_ignored(SIGTSTP)) return;  // by a shell without job control
    for (const int signal : kJobControl) handle(signal);
}

SignalSource::~SignalSource() {
    if (arrivals_.is_open()) close();  // the handlers write to the pipe
    arrivals_fd = -1;
}

void SignalSource::push_next() {
    arrivals_.async_read_some(boost::asio::buffer(buffer_),
                              [this](const boost::system::error_code& error, size_t size) {
                                  if (error) return;  // closed
                                  for (std::size_t i = 0; i < size / sizeof(SignalArrival); ++i) {
                                      const auto [signal, at] = buffer_[i];
                                      events_.push(event_of(signal), TimePoint(Duration(at)));
                                  }
                                  push_next();
                              });
}

Happening SignalSource::event_of(int signal) const {
    if (signal == SIGTSTP) return Suspended{};
    if (signal == SIGCONT) return Continued{};
    if (std::ranges::find(stop_, signal) != stop_.end()) return StopSignal{signal};
    return NotifySignal{signal};
}

void SignalSource::close() {
    hold_stop_signals();
    arrivals_.close();
}

void hold_stop_signals() {
    change_mask(SIG_BLOCK, kStop);
    change_mask(SIG_BLOCK, kNotify);
    change_mask(SIG_BLOCK, kJobControl);
}

void end_on_stop_signal(int exit_code) {
    final_code = exit_code;
    for (const int signal : kNotify) ::signal(signal, SIG_IGN);
    for (const int signal : kJobControl) ::signal(signal, SIG_DFL);  // of a session of its own: Ctrl-Z stops the guard
    for (const int signal : kStop) {
        if (!is_ignored(signal)) ::signal(signal, end_now);
    }
    change_mask(SIG_UNBLOCK, kStop);
    change_mask(SIG_UNBLOCK, kNotify);
    change_mask(SIG_UNBLOCK, kJobControl);
}

}  // namespace ddprun::agent
