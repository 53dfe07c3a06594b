#pragma once
// EventQueue: whatever happens to the agent, in order, for its one loop. One thread.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <boost/asio/as_tuple.hpp>
#include <deque>
#include <utility>

#include "agent/worker_group.hpp"

namespace ddprun::agent {

class EventQueue {
public:
    explicit EventQueue(boost::asio::io_context& io) : wake_(io, boost::asio::steady_timer::time_point::max()) {}

    void push(Event event) {
        events_.push_back(std::move(event));
        wake_.cancel();
    }

    [[nodiscard]] boost::asio::awaitable<Event> next() {
        while (events_.empty()) {
            // Ends by cancellation alone; what ended it is seen in the queue.
            co_await wake_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
        }
        Event event = std::move(events_.front());
        events_.pop_front();
        co_return event;
    }

private:
    std::deque<Event> events_;
    boost::asio::steady_timer wake_;
};

}  // namespace ddprun::agent
