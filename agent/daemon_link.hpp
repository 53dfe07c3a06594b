#pragma once
// DaemonLink: owns the agent's connection to the daemon: connects, joins, sends heartbeats, and pushes the daemon's
// messages, and its loss, into the EventQueue. When a connection breaks, or confirms nothing any more, it makes a new
// one and repeats every report that the daemon may have missed, until the daemon is given up. When the lease ends
// meanwhile it pushes LeaseEnded (docs/design/026). Owned by Agent; one thread.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/config/agent_config.hpp"
#include "agent/event_queue.hpp"
#include "agent/lease.hpp"
#include "common/clock.hpp"
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

    void start();
    /// Sends a report, now or on the next connection. If no connection is made in time, DaemonLost follows.
    void send(const protocol::AgentMessage& message);
    /// Sends a message that is useful only now. Returns false, and drops it, if there is no connection or the daemon
    /// does not understand it.
    [[nodiscard]] bool try_send(const protocol::AgentMessage& message);
    /// Drops the reports about older worker groups: they are not repeated on the next connection.
    void forget_reports_before(Generation generation);
    /// Drops the connection for good. Later messages are dropped, and no event follows.
    void drop();
    /// Sends the messages that are queued, then closes the connection; takes 2 s at most.
    [[nodiscard]] boost::asio::awaitable<void> close();

private:
    static constexpr std::chrono::seconds kLastTry{1};  ///< after give_up_at_, for the last answer

    boost::asio::awaitable<void> converse();
    /// Receives until the connection ends; returns the cause: "the rendezvous daemon at …: …".
    boost::asio::awaitable<std::string> listen();
    boost::asio::awaitable<void> keep_alive();
    [[nodiscard]] std::string after_welcome(const Error& error) const;
    void introduce();
    boost::asio::awaitable<Result<std::unique_ptr<client::ControlClient>>> connect();
    void end_lease();
    void end_hold();
    [[nodiscard]] std::string silence() const;
    [[nodiscard]] std::string unreached() const;
    void drop_silent();
    [[nodiscard]] TimePoint next_check(TimePoint heartbeat_due) const;
    void handle(protocol::DaemonMessage message);
    void accept(const protocol::Welcome& welcome);
    void reject(const protocol::Rejected& rejected);
    /// Before the Welcome, the daemon may be that of a job that is over, and that of the next one may follow.
    [[nodiscard]] bool may_connect_again() const {
        return (welcomed_ || Clock::now() < dial_until()) && !over_ && !closed_;
    }
    [[nodiscard]] TimePoint dial_until() const {
        const TimePoint end = begun_ + connect_timeout_;
        return give_up_at_ ? std::min(end, *give_up_at_ + kLastTry) : end;
    }
    void reject_for_now(const protocol::Rejected& rejected);
    void lose(std::string why);

    boost::asio::io_context& io_;
    Endpoint endpoint_;
    client::Security security_;
    protocol::Join join_;
    EventQueue& events_;
    std::chrono::milliseconds connect_timeout_;
    TimePoint begun_;  ///< when the first connection was tried
    Lease lease_;
    std::string silence_;                            ///< why this side has dropped the connection; empty: it has not
    std::string broken_;                             ///< why the last connection ended
    bool fell_silent_ = false;                       ///< this side has dropped the last connection
    std::optional<TimePoint> welcome_due_;           ///< when a connection without an answer to its Join is dropped
    bool lease_ended_ = false;                       ///< LeaseEnded was pushed; the next Welcome ends that
    bool hold_ended_ = false;                        ///< the same for HoldEnded
    std::unique_ptr<client::ControlClient> client_;  ///< null between two connections
    /// The reports about the latest worker group, and Leave: the daemon may have missed them.
    std::vector<protocol::AgentMessage> reports_;
    boost::asio::steady_timer heartbeat_timer_;
    bool welcomed_ = false;
    bool daemon_knows_records_ = false;
    std::string rejection_;  ///< why a daemon that may need this node later has rejected it; empty: it has not
    /// When a job that needs no node now rejects this one for good; nullopt: it has not been rejected by such a job.
    std::optional<TimePoint> give_up_at_;
    bool interrupted_ = false;  ///< the connection broke, and the user was notified
    bool over_ = false;         ///< the daemon has sent its last message
    bool closed_ = false;
    UniqueFd standby_;  ///< of a daemon that takes the port when the one there has ended
};

}  // namespace ddprun::agent
