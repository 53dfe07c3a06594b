#pragma once
// FakeAgent: an agent without workers. Joins a daemon over a real connection, keeps the messages that it gets, and
// sends those that the test wants. Shared, because its coroutines hold it.

#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "rendezvous/client/control_client.hpp"
#include "rendezvous/protocol/messages.hpp"
#include "tests/unit/rendezvous/daemon/loop.hpp"

namespace ddprun::test {

class FakeAgent : public std::enable_shared_from_this<FakeAgent> {
public:
    FakeAgent(asio::io_context& io, Endpoint daemon, protocol::Join join);

    /// Connects, joins, and listens from then on. Throws when there is no connection.
    awaitable<void> join();
    void send(const protocol::AgentMessage& message) { client_->send(message); }
    /// Sends heartbeats until stopped.
    void start_heartbeats(Duration interval);
    void stop_heartbeats() { beating_ = false; }
    /// Ends the connection as a crash would.
    void crash() { client_.reset(); }

    /// Returns the next message that is not Welcome, Waiting or Heartbeat. Throws when it is not an M, or no message
    /// comes.
    template <typename M>
    awaitable<M> expect(Duration limit = 10s) {
        std::optional<protocol::DaemonMessage> message = co_await next(limit);
        if (!message) throw std::runtime_error(join_.host + " got no message; the connection: " + end_);
        if (const M* wanted = std::get_if<M>(&*message)) co_return *wanted;
        throw std::runtime_error(join_.host + " got another message: " + describe(*message));
    }
    /// Returns whether the daemon ends the connection.
    awaitable<bool> is_closed(Duration limit = 10s) {
        return eventually([self = shared_from_this()] { return !self->end_.empty(); }, limit);
    }

    [[nodiscard]] int heartbeats_heard() const { return heartbeats_heard_; }
    [[nodiscard]] std::optional<protocol::Welcome> welcome() const { return welcome_; }
    [[nodiscard]] std::string end() const { return end_; }

private:
    awaitable<void> listen();
    awaitable<void> beat(Duration interval);
    awaitable<std::optional<protocol::DaemonMessage>> next(Duration limit);
    static std::string describe(const protocol::DaemonMessage& message);

    asio::io_context& io_;
    Endpoint daemon_;
    protocol::Join join_;
    std::unique_ptr<client::ControlClient> client_;
    std::deque<protocol::DaemonMessage> messages_;
    std::optional<protocol::Welcome> welcome_;
    int heartbeats_heard_ = 0;
    bool beating_ = false;
    std::string end_;  ///< why no more messages can arrive; empty: they can
};

/// A Join that any daemon takes: node n1 with one worker, of a job of one node.
protocol::Join join_as(const std::string& host, int min_nodes = 1, int max_nodes = 1);

}  // namespace ddprun::test
