// The agents of a large job as far as the daemon sees them: they join, and send heartbeats.
// usage: bench_launch_agents HOST PORT COUNT SECONDS     the joins are spread over that time
//        bench_launch_agents HOST PORT COUNT SECONDS handshakes  connects as often, without a Join
// Prints "ready" when all agents have their assignment, or when all connections have been made. After a line on stdin
// one agent reports the failure of its worker, and the microseconds until all others have the Abort are printed.

#include <unistd.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/ids.hpp"
#include "common/job_key.hpp"
#include "common/system/environment.hpp"
#include "rendezvous/client/control_client.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace {

namespace asio = boost::asio;
using namespace ddprun;
using namespace std::chrono_literals;

/// Connections that are made at the same time: fewer than the daemon admits before their Join.
constexpr int kConnectors = 64;

struct Agent {
    std::unique_ptr<client::ControlClient> client;
    protocol::Heartbeat heartbeat;
};

struct Fleet {
    Endpoint daemon;
    client::Security security;
    bool joins = true;
    std::chrono::milliseconds spread{};
    std::vector<Agent> agents;
    std::size_t begun = 0;
    std::size_t welcomed = 0;
    std::size_t ready = 0;
    std::size_t aborted = 0;
    TimePoint began{};
    TimePoint failed{};
};

void rethrow(std::exception_ptr error) {
    if (error) std::rethrow_exception(error);
}

/// Reports the failure of the first agent's worker when a line comes on stdin.
void fail_first(Fleet& fleet, Generation generation) {
    std::printf("ready\n");
    std::fflush(stdout);
    if (std::getchar() == EOF) std::_Exit(0);
    protocol::WorkerFailed report{.generation = generation, .failure = {}};
    report.failure.pid = 1;
    report.failure.status = {.kind = ExitStatus::Kind::kExited, .number = 1};
    const protocol::AgentMessage message = report;
    fleet.failed = Clock::now();
    fleet.agents.front().client->send(message);
}

asio::awaitable<void> send_heartbeats(Fleet& fleet, std::chrono::milliseconds interval) {
    asio::steady_timer timer(co_await asio::this_coro::executor);
    for (;;) {
        timer.expires_after(interval);
        co_await timer.async_wait(asio::use_awaitable);
        for (std::size_t i = 0; i < fleet.begun; ++i) {
            Agent& agent = fleet.agents[i];
            if (!agent.client) continue;
            ++agent.heartbeat.number;
            const protocol::AgentMessage message = agent.heartbeat;
            agent.client->send(message);
        }
    }
}

asio::awaitable<void> receive_all(Fleet& fleet, std::size_t number) {
    Agent& agent = fleet.agents[number];
    for (;;) {
        const auto message = (co_await agent.client->receive()).value();
        if (const auto* welcome = std::get_if<protocol::Welcome>(&message)) {
            if (fleet.welcomed++ == 0)
                asio::co_spawn(co_await asio::this_coro::executor, send_heartbeats(fleet, welcome->heartbeat_interval),
                               rethrow);
        } else if (const auto* heartbeat = std::get_if<protocol::Heartbeat>(&message)) {
            agent.heartbeat.heard = heartbeat->number;
        } else if (const auto* assignment = std::get_if<protocol::Assignment>(&message)) {
            if (++fleet.ready == fleet.agents.size()) fail_first(fleet, assignment->generation);
        } else if (std::holds_alternative<protocol::Abort>(message) && number != 0) {
            if (++fleet.aborted < fleet.agents.size() - 1) continue;
            const auto taken = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - fleet.failed);
            std::printf("%lld\n", static_cast<long long>(taken.count()));
            std::fflush(stdout);
            std::_Exit(0);
        }
    }
}

protocol::Join join_of(std::size_t number, const Fleet& fleet) {
    protocol::Join join;
    join.node = random_id();
    join.host = "node" + std::to_string(number);
    join.min_nodes = join.max_nodes = static_cast<int>(fleet.agents.size());
    return join;
}

/// Connects one agent after the other, until all have been connected.
asio::awaitable<void> connect_agents(Fleet& fleet) {
    const auto executor = co_await asio::this_coro::executor;
    asio::steady_timer timer(executor);
    while (fleet.begun < fleet.agents.size()) {
        const std::size_t number = fleet.begun++;
        timer.expires_at(fleet.began + fleet.spread * number / fleet.agents.size());
        co_await timer.async_wait(asio::use_awaitable);
        auto client =
            (co_await client::ControlClient::connect(fleet.daemon, Clock::now() + 30s, {}, fleet.security)).value();
        if (!fleet.joins) {
            co_await client->close();
            if (++fleet.ready == fleet.agents.size()) {
                std::printf("ready\n");
                std::fflush(stdout);
                std::getchar();
                std::_Exit(0);
            }
            continue;
        }
        const protocol::AgentMessage message = join_of(number, fleet);
        client->send(message);
        fleet.agents[number].client = std::move(client);
        asio::co_spawn(executor, receive_all(fleet, number), rethrow);
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 5) return 2;
    Fleet fleet;
    fleet.daemon = {argv[1], static_cast<std::uint16_t>(std::atoi(argv[2]))};
    fleet.agents.resize(static_cast<std::size_t>(std::max(std::atoi(argv[3]), 2)));
    fleet.joins = argc == 5;
    fleet.spread = std::chrono::seconds(std::atoi(argv[4]));
    fleet.security = client::make_security(JobKey::load(parse_environment(environ)).value(), false).value();
    fleet.began = Clock::now();
    asio::io_context io(1);
    for (int i = 0; i < kConnectors; ++i) asio::co_spawn(io, connect_agents(fleet), rethrow);
    io.run();
}
