#include "agent/signal_source.hpp"

#include <algorithm>
#include <csignal>

#include "agent/last_signals.hpp"
#include "common/system/signals.hpp"

namespace ddprun::agent {
namespace {

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
    for (const int signal : {SIGUSR1, SIGUSR2}) (is_named(signal) ? stop_ : notify_).add(signal);
    for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) {
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

}  // namespace ddprun::agent
