#include "agent/signal_source.hpp"

#include <algorithm>
#include <csignal>

#include "agent/last_signals.hpp"
#include "common/signals.hpp"

namespace ddprun::agent {
namespace {

/// Every signal of `signals` becomes a `SignalEvent`, until the set is cleared.
template <typename SignalEvent>
void push_each(boost::asio::signal_set& signals, EventQueue& events) {
    signals.async_wait([&](const boost::system::error_code& error, int signal) {
        if (error) return;
        events.push(SignalEvent{signal});
        push_each<SignalEvent>(signals, events);
    });
}

}  // namespace

SignalSource::SignalSource(boost::asio::io_context& io, EventQueue& events, const std::vector<int>& drain)
    : stop_(io), notify_(io) {
    for (const int signal : {SIGUSR1, SIGUSR2})
        (std::ranges::find(drain, signal) != drain.end() ? stop_ : notify_).add(signal);
    for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) {
        const bool nohup = signal == SIGHUP && is_ignored(SIGHUP);
        if (!nohup) stop_.add(signal);
    }
    push_each<StopSignal>(stop_, events);
    push_each<NotifySignal>(notify_, events);
}

void SignalSource::close() {
    hold_stop_signals();  // first, for clear() gives them back to the kernel, which would end us by them
    stop_.clear();
    notify_.clear();
}

}  // namespace ddprun::agent
