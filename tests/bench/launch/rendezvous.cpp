// The agents of a job as far as the daemon sees them: COUNT connections that join at once.
// usage: bench_launch_rendezvous PORT COUNT
// Prints the microseconds from the last Join that was sent to the last Assignment that arrived.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/ids.hpp"
#include "rendezvous/client/control_client.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace {

namespace asio = boost::asio;
using namespace ddprun;
using namespace std::chrono_literals;

asio::awaitable<void> await_assignment(client::ControlClient& client) {
    for (;;) {
        const auto message = (co_await client.receive()).value();
        if (std::holds_alternative<protocol::Assignment>(message)) co_return;
    }
}

asio::awaitable<Duration> join_all(Endpoint daemon, int count) {
    std::vector<std::unique_ptr<client::ControlClient>> clients;
    for (int i = 0; i < count; ++i)
        clients.push_back((co_await client::ControlClient::connect(daemon, Clock::now() + 10s)).value());
    for (int i = 0; i < count; ++i) {
        protocol::Join join;
        join.node = random_id();
        join.host = "node" + std::to_string(i);
        join.min_nodes = join.max_nodes = count;
        const protocol::AgentMessage message = join;
        clients[static_cast<std::size_t>(i)]->send(message);
    }
    const TimePoint joined = Clock::now();
    for (const auto& client : clients) co_await await_assignment(*client);
    co_return Clock::now() - joined;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const Endpoint daemon{"127.0.0.1", static_cast<std::uint16_t>(std::atoi(argv[1]))};
    asio::io_context io(1);
    asio::co_spawn(io, join_all(daemon, std::atoi(argv[2])), [](std::exception_ptr error, Duration taken) {
        if (error) std::rethrow_exception(error);
        std::printf("%lld\n",
                    static_cast<long long>(std::chrono::duration_cast<std::chrono::microseconds>(taken).count()));
        std::fflush(stdout);
        std::_Exit(0);  // the connections stay open until the figure is printed
    });
    io.run();
}
