#pragma once
// DaemonLink: the agent's side of its one conversation with the daemon: connects, joins, keeps it alive, and turns what
// it hears, or does not hear in time, into events. One thread.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "agent/worker_group.hpp"
#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "rendezvous/client/control_client.hpp"
#include "rendezvous/coordinator/messages.hpp"

namespace ddprun::agent {

class DaemonLink {
public:
    struct Callbacks {
        std::function<void(Event)> event;
        std::function<void(const coordinator::Welcome&)> welcomed;
        std::function<void(const coordinator::Waiting&)> waiting;
    };

    DaemonLink(boost::asio::io_context& io, Endpoint endpoint, coordinator::Join join,
               std::chrono::milliseconds connect_timeout, Callbacks callbacks);

    void start();
    /// Dropped when there is no connection: nobody listens, and DaemonLost says so.
    void send(const coordinator::AgentMessage& message);
    /// Says goodbye after what was sent; bounded.
    [[nodiscard]] boost::asio::awaitable<void> close();

private:
    boost::asio::awaitable<void> converse();
    boost::asio::awaitable<void> keep_alive();
    void take(coordinator::DaemonMessage message);
    void lose(std::string why);

    boost::asio::io_context& io_;
    Endpoint endpoint_;
    coordinator::Join join_;
    Callbacks callbacks_;
    std::chrono::milliseconds heartbeat_interval_;
    std::chrono::milliseconds
        lost_after_;  ///< silence that means that the daemon is gone; before Welcome: the connect timeout
    TimePoint heard_;
    std::unique_ptr<client::ControlClient> client_;
    boost::asio::steady_timer timer_;
    bool closed_ = false;
};

}  // namespace ddprun::agent
