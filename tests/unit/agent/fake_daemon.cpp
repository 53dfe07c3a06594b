#include "tests/unit/agent/fake_daemon.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "common/logging.hpp"
#include "rendezvous/protocol/json.hpp"
#include "rendezvous/transport/websocket.hpp"

namespace agent_test {

namespace asio = boost::asio;
using namespace ddprun;
using namespace ddprun::protocol;
using namespace std::chrono_literals;

constexpr auto kTimeout = 20s;

FakeDaemon::FakeDaemon() : acceptor_(io_, {asio::ip::address_v4::loopback(), 0}) {}

Endpoint FakeDaemon::endpoint() const { return {"127.0.0.1", acceptor_.local_endpoint().port()}; }

template <typename T>
T FakeDaemon::await(asio::awaitable<T> operation) {
    std::optional<T> result;
    asio::co_spawn(io_, std::move(operation), [&](std::exception_ptr error, T value) {
        if (error) std::rethrow_exception(error);
        result = std::move(value);
        io_.stop();
    });
    io_.restart();
    io_.run_for(kTimeout);
    if (!result) throw std::runtime_error("the agent did not do in time what the test expects");
    return std::move(*result);
}

asio::awaitable<std::shared_ptr<transport::Channel>> FakeDaemon::next_agent() {
    for (;;) {  // an agent gives up a connection that is not answered in time, and makes another one
        asio::ip::tcp::socket socket = co_await acceptor_.async_accept(asio::use_awaitable);
        auto channel = co_await transport::accept_websocket(std::move(socket), Clock::now() + kTimeout);
        if (channel) co_return *channel;
    }
}

Join FakeDaemon::accept() {
    for (;;) {
        channel_ = await(next_agent());
        const auto text = await(channel_->receive());
        if (text) return std::get<Join>(decode_agent_message(*text).value());
    }
}

Join FakeDaemon::refuse(const Rejected& answer) {
    const Join join = accept();
    send(answer);
    drop();
    return join;
}

Join FakeDaemon::welcome(std::chrono::milliseconds lost_after) {
    const Join join = accept();
    Welcome welcome;
    welcome.run_id = "run";
    welcome.heartbeat_interval = 50ms;
    welcome.lost_after = welcome.reconnect_grace = welcome.hold = lost_after;
    welcome.session = kSession;
    welcome.records = true;
    send(welcome);
    return join;
}

void FakeDaemon::run_io() {
    io_.restart();
    io_.run_for(10ms);
}

void FakeDaemon::send(const DaemonMessage& message) {
    channel_->send(encode(message));
    run_io();
}

void FakeDaemon::drop() {
    channel_.reset();
    run_io();
}

AgentMessage FakeDaemon::next() {
    for (;;) {
        const std::string text = await(channel_->receive()).value();
        AgentMessage message = decode_agent_message(text).value();
        const bool of_one_worker = std::holds_alternative<WorkerFinished>(message);
        if (!std::holds_alternative<Heartbeat>(message) && !of_one_worker) return message;
    }
}

void FakeDaemon::expect_heartbeat() {
    const std::string text = await(channel_->receive()).value();
    if (!std::holds_alternative<Heartbeat>(decode_agent_message(text).value()))
        throw std::runtime_error("no heartbeat: " + text);
}

bool FakeDaemon::closed() {
    for (;;) {
        const auto text = await(channel_->receive());
        if (!text) return text.error().code == Errc::kClosed;
        if (!std::holds_alternative<Heartbeat>(decode_agent_message(*text).value())) return false;
    }
}

AgentProcess::AgentProcess(agent::AgentConfig config, int not_for_agent) {
    pid_ = fork_flushed();
    if (pid_ == 0) {
        if (not_for_agent >= 0) ::close(not_for_agent);
        ::setenv("AGENT_TEST", mark_.value().c_str(), 1);
        ::dup2(out_.write_end.get(), 1);
        ::dup2(err_.write_end.get(), 2);
        out_.write_end.reset();
        err_.write_end.reset();
        init_logging("ddprun", LineStart::kTag);
        ::_exit(agent::run_agent(std::move(config)));
    }
    out_.write_end.reset();
    err_.write_end.reset();
}

AgentProcess::~AgentProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
}

void AgentProcess::signal(int number) const { ::kill(pid_, number); }

bool AgentProcess::catches(int signal) const {
    return eventually([&] {
        std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
        for (std::string line; std::getline(status, line);) {
            if (line.starts_with("SigCgt:")) return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1) != 0;
        }
        return false;
    });
}

ExitStatus AgentProcess::end() { return wait_for(std::exchange(pid_, -1)); }

}  // namespace agent_test
