// Two channels in one io_context, over a real loopback connection.
#include <boost/asio/ip/v6_only.hpp>

#include <optional>
#include <vector>

#include "rendezvous/transport/websocket.hpp"
#include "tests/catch.hpp"
#include "tests/machine_pauses.hpp"
#include "tests/unit/rendezvous/daemon/loop.hpp"

using namespace ddprun;
using namespace ddprun::test;
using transport::Channel;

namespace {

struct Pair {
    std::shared_ptr<Channel> client;
    std::shared_ptr<Channel> server;
};

awaitable<void> accept_one(tcp::acceptor& acceptor, std::shared_ptr<Channel>& channel) {
    tcp::socket socket = co_await acceptor.async_accept(asio::use_awaitable);
    channel = (co_await transport::accept_websocket(std::move(socket), in(5s))).value();
}

awaitable<Pair> connected(asio::io_context& io) {
    tcp::acceptor acceptor = listen_on_loopback(io);
    Pair pair;
    spawn(io, accept_one(acceptor, pair.server));
    pair.client = (co_await transport::connect_websocket(acceptor.local_endpoint(), in(5s))).value();
    if (!co_await eventually([&] { return pair.server != nullptr; }))
        throw std::runtime_error("the connection was not accepted");
    co_return pair;
}

/// Returns the error of receive() when no message arrives.
awaitable<Error> failure_of(std::shared_ptr<Channel> channel) {
    const Result<std::string> received = co_await channel->receive();
    if (received) throw std::runtime_error("a message where an error was expected: " + received->substr(0, 100));
    co_return received.error();
}

using Test = awaitable<void> (*)(asio::io_context&);

void run_test(Test test) {
    asio::io_context io(1);
    REQUIRE(run(io, test(io)));
}

}  // namespace

TEST_CASE("messages arrive whole, in order and in both directions", "[channel][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        const Pair pair = co_await connected(io);
        for (int i = 0; i < 200; ++i) {
            pair.client->send("question " + std::to_string(i));
            pair.server->send("answer " + std::to_string(i));
        }
        for (int i = 0; i < 200; ++i) {
            const auto question = co_await pair.server->receive();
            const auto answer = co_await pair.client->receive();
            CHECK(question.value() == "question " + std::to_string(i));
            CHECK(answer.value() == "answer " + std::to_string(i));
        }
        pair.client->send("");
        const auto empty = co_await pair.server->receive();
        CHECK(empty.value().empty());
    });
}

TEST_CASE("each end knows its address, also after the end of the connection", "[channel][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        const Pair pair = co_await connected(io);
        for (const auto& channel : {pair.client, pair.server}) {
            CHECK(channel->local_address().to_string() == "127.0.0.1");
            channel->abort();
            CHECK(channel->local_address().to_string() == "127.0.0.1");
        }
    });
}

TEST_CASE("an IPv4 peer of a dual-stack listener has an IPv4 address", "[channel][unit]") {
    asio::io_context io(1);
    tcp::acceptor acceptor(io);
    boost::system::error_code ec;
    acceptor.open(tcp::v6(), ec);
    if (!ec) acceptor.set_option(asio::ip::v6_only(false), ec);
    if (!ec) acceptor.bind(tcp::endpoint(asio::ip::address_v6::any(), 0), ec);
    if (ec) {
        WARN("SKIPPED: no IPv6 here: " << ec.message());
        return;
    }
    acceptor.listen();
    std::shared_ptr<Channel> server;
    spawn(io, accept_one(acceptor, server));
    const auto test = [&]() -> awaitable<void> {
        const tcp::endpoint endpoint(asio::ip::address_v4::loopback(), acceptor.local_endpoint().port());
        const auto client = co_await transport::connect_websocket(endpoint, in(5s));
        const bool accepted = co_await eventually([&] { return server != nullptr; });
        REQUIRE(client.has_value());
        REQUIRE(accepted);
        CHECK(server->local_address().to_string() == "127.0.0.1");
    };
    REQUIRE(run(io, test()));
}

TEST_CASE("a message of the greatest length arrives", "[channel][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        const Pair pair = co_await connected(io);
        std::string big(transport::kMaxMessageBytes, 'x');
        big.back() = 'y';
        pair.client->send(big);
        pair.client->send("and another");
        const auto received = co_await pair.server->receive();
        CHECK((received.value() == big));  // parenthesised: not to be printed
        const auto next = co_await pair.server->receive();
        CHECK(next.value() == "and another");
    });
}

TEST_CASE("a message beyond the limit is not sent, and ends the channel", "[channel][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        const Pair pair = co_await connected(io);
        pair.client->send(std::string(transport::kMaxMessageBytes + 1, 'x'));
        const Error at_sender = co_await failure_of(pair.client);
        CHECK(at_sender.code == Errc::kLimit);
        const Error at_receiver = co_await failure_of(pair.server);
        CHECK(at_receiver.code == Errc::kClosed);
    });
}

TEST_CASE("a peer that does not read is dropped when too much waits for it", "[channel][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        const Pair pair = co_await connected(io);
        for (int i = 0; i < 5; ++i) pair.server->send(std::string(4u << 20, 'x'));
        const Error error = co_await failure_of(pair.server);
        CHECK(error.code == Errc::kLimit);
        CHECK_THAT(error.message, Catch::Contains("does not read"));
    });
}

TEST_CASE("close delivers what was queued, and then both ends are closed", "[channel][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        const Pair pair = co_await connected(io);
        for (int i = 0; i < 3; ++i) pair.server->send(std::string(1u << 20, static_cast<char>('a' + i)));
        spawn(io, pair.server->close());
        for (int i = 0; i < 3; ++i) {
            const auto received = co_await pair.client->receive();
            CHECK((received.value() == std::string(1u << 20, static_cast<char>('a' + i))));
        }
        const Error at_client = co_await failure_of(pair.client);
        CHECK(at_client.code == Errc::kClosed);
        const Error at_server = co_await failure_of(pair.server);
        CHECK(at_server.code == Errc::kClosed);
    });
}

TEST_CASE("close ends within its time when the peer is silent", "[channel][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        const Pair pair = co_await connected(io);
        pair.server->send(std::string(transport::kMaxMessageBytes, 'x'));  // more than the sockets' buffers hold
        const MachinePauses pauses;
        const TimePoint start = Clock::now();
        co_await pair.server->close();
        CHECK(Clock::now() - start - pauses.sum() < 3s);
        const Error error = co_await failure_of(pair.server);
        CHECK(error.code == Errc::kClosed);
    });
}

TEST_CASE("close and abort end a receive that waits", "[channel][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        const Pair pair = co_await connected(io);
        std::vector<std::optional<Error>> ended(2);
        const auto wait = [&](std::shared_ptr<Channel> channel, std::size_t i) -> awaitable<void> {
            ended[i] = co_await failure_of(channel);
        };
        spawn(io, wait(pair.client, 0));
        spawn(io, wait(pair.server, 1));
        co_await pause(1ms);
        co_await pair.client->close();
        const bool both = co_await eventually([&] { return ended[0] && ended[1]; });
        CHECK(both);
        CHECK(ended[0]->code == Errc::kClosed);
        CHECK(ended[1]->code == Errc::kClosed);
        pair.client->send("ignored");  // harmless after the end
        pair.client->abort();
        co_await pair.client->close();
    });
}

TEST_CASE("dropping the last reference drops the connection while an operation waits", "[channel][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        Pair pair = co_await connected(io);
        bool ended = false;
        // Takes the awaitable alone, not the channel.
        const auto wait = [&](awaitable<Result<std::string>> receive) -> awaitable<void> {
            const auto received = co_await std::move(receive);
            ended = !received.has_value();
        };
        spawn(io, wait(pair.client->receive()));
        co_await pause(1ms);
        pair.client.reset();
        const Error at_server = co_await failure_of(pair.server);
        CHECK(at_server.code == Errc::kClosed);
        const bool client_ended = co_await eventually([&] { return ended; });
        CHECK(client_ended);
    });
}
