#pragma once
// FakeDaemon: a daemon that sends what a test wants. AgentProcess: an agent, in a process of its own, that joins it.

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>

#include "agent/agent.hpp"
#include "common/system/exit_status.hpp"
#include "rendezvous/protocol/messages.hpp"
#include "rendezvous/transport/channel.hpp"
#include "tests/unit/agent/workers/processes.hpp"

namespace agent_test {

class FakeDaemon {
public:
    static constexpr const char* kSession = "session";  ///< the session that its Welcome names

    FakeDaemon();

    [[nodiscard]] ddprun::Endpoint endpoint() const;
    /// Accepts the next connection; returns its Join and answers with a Welcome of short times.
    ddprun::protocol::Join welcome(std::chrono::milliseconds lost_after = std::chrono::seconds(20));
    /// Accepts the next connection, answers with `answer` and closes it.
    ddprun::protocol::Join refuse(const ddprun::protocol::Rejected& answer);
    void send(const ddprun::protocol::DaemonMessage& message);
    /// Returns the next message that is neither a heartbeat nor a WorkerFinished: their number is not fixed.
    ddprun::protocol::AgentMessage next();
    /// Does the same; throws if the message is not a `Message`.
    template <typename Message>
    Message expect() {
        const auto message = next();
        if (const auto* expected = std::get_if<Message>(&message)) return *expected;
        throw std::runtime_error("another message than expected: number " + std::to_string(message.index()));
    }
    /// Waits for a heartbeat.
    void expect_heartbeat();
    /// Whether the agent has closed the connection.
    bool closed();
    void drop();

private:
    boost::asio::awaitable<std::shared_ptr<ddprun::transport::Channel>> next_agent();
    ddprun::protocol::Join accept();
    /// Runs the connection for a moment; the fake has no loop of its own.
    void run_io();
    template <typename T>
    T await(boost::asio::awaitable<T> operation);

    boost::asio::io_context io_{1};
    boost::asio::ip::tcp::acceptor acceptor_;
    std::shared_ptr<ddprun::transport::Channel> channel_;
};

/// run_agent in a process of its own; its stdout and stderr are pipes, its workers carry the mark.
class AgentProcess {
public:
    /// `not_for_agent`: a descriptor of the test that the agent must not inherit.
    explicit AgentProcess(ddprun::agent::AgentConfig config, int not_for_agent = -1);
    ~AgentProcess();

    void signal(int number) const;
    /// Waits until the agent has a handler for `signal`.
    [[nodiscard]] bool catches(int signal) const;
    ddprun::ExitStatus end();
    [[nodiscard]] std::string out() const { return read_all(out_.read_end.get()); }
    [[nodiscard]] std::string err() const { return read_all(err_.read_end.get()); }
    [[nodiscard]] const Mark& mark() const { return mark_; }

    Pipe out_;
    Pipe err_;

private:
    Mark mark_;
    pid_t pid_ = -1;
};

}  // namespace agent_test
