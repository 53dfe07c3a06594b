#pragma once
// DaemonLink: the agent's side of its one conversation with the daemon: connects, joins, keeps it alive, and turns what
// it hears, or does not hear in time, into events. A connection that breaks is made again, and what the daemon may have
// missed is told again, for as long as a silent daemon would be waited for. One thread.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

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
        std::function<void(const coordinator::ShowBoards&)> show_boards;
        std::function<void(const coordinator::Notice&)> job_notice;  ///< about the job as a whole
        std::function<void(const std::string&)> notice;  ///< for people: the connection broke, and was made again
    };

    DaemonLink(boost::asio::io_context& io, Endpoint endpoint, coordinator::Join join,
               std::chrono::milliseconds connect_timeout, Callbacks callbacks);

    void start();
    /// While there is no connection it waits for the next one; if there is none in time, DaemonLost says so.
    void send(const coordinator::AgentMessage& message);
    /// What is of use now or never: false, and dropped, while there is no connection, or when the daemon does not
    /// understand it.
    [[nodiscard]] bool tell(const coordinator::AgentMessage& message);
    /// Says goodbye after what was sent; bounded.
    [[nodiscard]] boost::asio::awaitable<void> close();

private:
    boost::asio::awaitable<void> converse();
    /// Until the connection ends; returns why: "the rendezvous daemon at …: …".
    boost::asio::awaitable<std::string> listen();
    boost::asio::awaitable<void> keep_alive();
    void introduce();
    void take(coordinator::DaemonMessage message);
    void forget_reports_before(Generation generation);
    [[nodiscard]] bool may_connect_again() const { return welcomed_ && !over_ && !closed_; }
    void lose(std::string why);

    boost::asio::io_context& io_;
    Endpoint endpoint_;
    coordinator::Join join_;
    Callbacks callbacks_;
    std::chrono::milliseconds heartbeat_interval_;
    std::chrono::milliseconds
        lost_after_;  ///< silence that means that the daemon is gone; before Welcome: the connect timeout
    TimePoint heard_;
    std::unique_ptr<client::ControlClient> client_;  ///< null between two connections
    /// What was said about the latest worker group, and that this node leaves: the daemon may have missed it.
    std::vector<coordinator::AgentMessage> reports_;
    boost::asio::steady_timer timer_;
    bool welcomed_ = false;
    bool knows_boards_ = false;     ///< the daemon does
    bool interrupted_ = false;      ///< people were told that the connection broke
    bool refused_for_now_ = false;  ///< the daemon has not noticed yet that our last connection broke
    bool over_ = false;             ///< the daemon has said its last word
    bool closed_ = false;
};

}  // namespace ddprun::agent
