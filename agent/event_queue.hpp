#pragma once
// EventQueue: holds the agent's events in the order in which they happened. Event sources, the daemon link and the
// worker processes push; the agent's loop takes. One thread.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <boost/asio/as_tuple.hpp>
#include <deque>
#include <optional>
#include <utility>

#include "agent/group/events.hpp"

namespace ddprun::agent {

class EventQueue {
public:
    explicit EventQueue(boost::asio::io_context& io) : wake_(io, boost::asio::steady_timer::time_point::max()) {}

    /// Appends an event that happened at `at`, now by default.
    void push(Happening what, TimePoint at = Clock::now()) {
        events_.push_back({at, std::move(what)});
        wake_.cancel();
    }

    /// Appends an event after the handlers that are ready by now have run. For work that goes on in small pieces.
    void push_later(Happening what) {
        boost::asio::post(wake_.get_executor(), [this, what = std::move(what)]() mutable { push(std::move(what)); });
    }

    /// Returns the oldest event, and waits for one if there is none.
    [[nodiscard]] boost::asio::awaitable<Event> next() {
        while (events_.empty()) {
            // The wait ends by cancellation alone; the queue shows whether an event is the cause.
            co_await wake_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
        }
        co_return take();
    }

    /// Returns the oldest event, if there is one.
    [[nodiscard]] std::optional<Event> try_next() {
        if (events_.empty()) return std::nullopt;
        return take();
    }

private:
    Event take() {
        Event event = std::move(events_.front());
        events_.pop_front();
        return event;
    }

    std::deque<Event> events_;
    boost::asio::steady_timer wake_;
};

}  // namespace ddprun::agent
