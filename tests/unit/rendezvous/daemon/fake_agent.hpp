#pragma once
// An agent without workers: joins a daemon over a real connection, keeps what it is told, and says what the test wants
// said. Shared, for its coroutines hold it.

#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "rendezvous/client/control_client.hpp"
#include "rendezvous/coordinator/messages.hpp"
#include "tests/unit/rendezvous/loop.hpp"

namespace ddprun::test {

class FakeAgent : public std::enable_shared_from_this<FakeAgent> {
public:
    FakeAgent(asio::io_context& io, Endpoint daemon, coordinator::Join join);

    /// Connects, joins, and listens from then on. Throws when there is no connection.
    awaitable<void> join();
    void send(const coordinator::AgentMessage& message) { client_->send(message); }
    /// Says that it is alive, until stopped.
    void start_heartbeats(Duration interval);
    void stop_heartbeats() { beating_ = false; }
    /// Ends the connection as a crash would.
    void crash() { client_.reset(); }

    /// The next message that is not Welcome, Waiting or Heartbeat, which must be an M. Throws when it is not, or none
    /// comes.
    template <typename M>
    awaitable<M> expect(Duration limit = 10s) {
        std::optional<coordinator::DaemonMessage> message = co_await next(limit);
        if (!message) throw std::runtime_error(join_.host + " was told nothing; the connection: " + end_);
        if (const M* wanted = std::get_if<M>(&*message)) co_return *wanted;
        throw std::runtime_error(join_.host + " was told something else: " + describe(*message));
    }
    /// Whether the daemon ends the connection.
    awaitable<bool> is_closed(Duration limit = 10s) {
        return eventually([self = shared_from_this()] { return !self->end_.empty(); }, limit);
    }

    [[nodiscard]] int heartbeats_heard() const { return heartbeats_heard_; }
    [[nodiscard]] std::optional<coordinator::Welcome> welcome() const { return welcome_; }
    [[nodiscard]] std::string end() const { return end_; }

private:
    awaitable<void> listen();
    awaitable<void> beat(Duration interval);
    awaitable<std::optional<coordinator::DaemonMessage>> next(Duration limit);
    static std::string describe(const coordinator::DaemonMessage& message);

    asio::io_context& io_;
    Endpoint daemon_;
    coordinator::Join join_;
    std::unique_ptr<client::ControlClient> client_;
    std::deque<coordinator::DaemonMessage> messages_;
    std::optional<coordinator::Welcome> welcome_;
    int heartbeats_heard_ = 0;
    bool beating_ = false;
    std::string end_;  ///< why nothing more comes; empty: it may
};

/// A Join that any daemon takes: node n1 with one worker, of a job of one node.
coordinator::Join join_as(const std::string& host, int min_nodes = 1, int max_nodes = 1);

}  // namespace ddprun::test
