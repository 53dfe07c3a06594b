#pragma once
// DaemonLink: owns the agent's connection to the daemon. It performs what link::step() decides: connects, sends, resets
// a connection, and pushes the daemon's messages, its loss and the end of the lease into the EventQueue. Owned by
// Agent; one thread.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <memory>
#include <string>

#include "agent/config/agent_config.hpp"
#include "agent/event_queue.hpp"
#include "agent/link/link.hpp"
#include "agent/vouch.hpp"
#include "common/endpoint.hpp"
#include "common/system/unique_fd.hpp"
#include "rendezvous/client/control_client.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

class DaemonLink {
public:
    /// `io` and `events` must outlive this object. AgentConfig::connect_timeout limits connecting, and the wait for the
    /// Welcome. Takes AgentConfig::standby, which lasts until the Welcome, or until a job with all its nodes rejects
    /// this one.
    DaemonLink(boost::asio::io_context& io, AgentConfig& config, protocol::Join join, EventQueue& events);

    void start() { handle(link::Started{}); }
    /// Sends a report, now or on the next connection. If no connection is made in time, DaemonLost follows.
    void send(const protocol::AgentMessage& message) { handle(link::Reported{message}); }
    /// Sends a message that is useful only now. Returns false, and drops it, if there is no connection or the daemon
    /// does not understand it.
    [[nodiscard]] bool try_send(const protocol::AgentMessage& message);
    /// Drops the reports about older worker groups: they are not repeated on the next connection.
    void forget_reports_before(Generation generation) { handle(link::GroupBegun{generation}); }
    /// Drops the connection for good. Later messages are dropped, and no event follows.
    void drop();
    /// Sends the messages that are queued, then closes the connection; takes 2 s at most.
    [[nodiscard]] boost::asio::awaitable<void> close();

private:
    [[nodiscard]] bool has_ended() const { return state_.phase == link::Phase::kEnded; }
    void handle(link::Happening what);
    void perform(const link::Dial& dial);
    void perform(const link::Send& send) { client_->send(send.message); }
    void perform(const link::Reset&) { client_->reset(); }
    void perform(link::Raise& raise) { events_.push(std::move(raise.event)); }
    void perform(const link::ReleaseStandby&) { standby_.reset(); }
    void perform(const link::AnswerVouch& asked) { client_->send(vouch_for(asked.request)); }
    void arm_timer();
    /// Dials, and receives until the connection ends.
    boost::asio::awaitable<void> converse(link::Dial dial);
    /// Receives until the connection ends; returns the cause: "the rendezvous daemon at …: …".
    boost::asio::awaitable<std::string> listen();

    boost::asio::io_context& io_;
    Endpoint endpoint_;
    client::Security security_;
    EventQueue& events_;
    link::State state_;
    std::unique_ptr<client::ControlClient> client_;  ///< null between two connections
    boost::asio::steady_timer timer_;
    UniqueFd standby_;  ///< of a daemon that takes the port when the one there has ended
};

}  // namespace ddprun::agent
