#include "agent/signal_source.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "common/system/signals.hpp"

namespace ddprun::agent {
namespace {

constexpr std::array kStop{SIGINT, SIGTERM, SIGQUIT, SIGHUP};
constexpr std::array kNotify{SIGUSR1, SIGUSR2};

volatile std::sig_atomic_t final_code = 0;  // of what a signal handler may read

void end_now(int) { ::_exit(final_code); }

template <typename Signals>
void change_mask(int how, const Signals& signals) {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int signal : signals) ::sigaddset(&set, signal);
    ::sigprocmask(how, &set, nullptr);
}

/// Pushes the event that `event_of` makes of each signal of `signals`, until the set is cleared.
template <typename EventOf>
void push_each(boost::asio::signal_set& signals, EventQueue& events, EventOf event_of) {
    signals.async_wait([&signals, &events, event_of](const boost::system::error_code& error, int signal) {
        if (error) return;
        events.push(event_of(signal));
        push_each(signals, events, event_of);
    });
}

}  // namespace

SignalSource::SignalSource(boost::asio::io_context& io, EventQueue& events, const std::vector<int>& drain)
    : stop_(io), notify_(io) {
    const auto is_named = [drain](int signal) { return std::ranges::find(drain, signal) != drain.end(); };
    for (const int signal : kNotify) (is_named(signal) ? stop_ : notify_).add(signal);
    for (const int signal : kStop) {
        const bool nohup = signal == SIGHUP && is_ignored(SIGHUP);
        if (!nohup) stop_.add(signal);
    }
    push_each(stop_, events, [is_named](int signal) {
        return StopSignal{signal, is_named(signal) ? signal : SIGTERM};
    });
    push_each(notify_, events, [](int signal) { return NotifySignal{signal}; });
}

void SignalSource::close() {
    hold_stop_signals();  // first: after clear() a signal would end this process
    stop_.clear();
    notify_.clear();
}

void hold_stop_signals() {
    change_mask(SIG_BLOCK, kStop);
    change_mask(SIG_BLOCK, kNotify);
}

void end_on_stop_signal(int exit_code) {
    final_code = exit_code;
    for (const int signal : kNotify) ::signal(signal, SIG_IGN);
    for (const int signal : kStop) {
        if (!is_ignored(signal)) ::signal(signal, end_now);
    }
    change_mask(SIG_UNBLOCK, kStop);
    change_mask(SIG_UNBLOCK, kNotify);
}

}  // namespace ddprun::agent
