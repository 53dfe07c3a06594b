// What the daemon survives: bad messages, strangers, crowds, ports in use. A good agent is served meanwhile.

#include <unistd.h>

#include <boost/asio/write.hpp>

#include "rendezvous/protocol/json.hpp"
#include "rendezvous/transport/websocket.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/daemon/daemon_fixture.hpp"

using namespace ddprun;
using namespace ddprun::test;
using namespace ddprun::protocol;
using namespace ddprun::diagnosis;
using namespace ddprun::coordinator;

namespace {

awaitable<std::shared_ptr<transport::Channel>> raw_channel(const DaemonFixture& fixture) {
    const tcp::endpoint endpoint = fixture.daemon->endpoint();
    co_return (co_await transport::connect_websocket(endpoint, in(5s))).value();
}

/// Receives until the daemon closes; returns how long that took.
awaitable<Duration> until_closed(std::shared_ptr<transport::Channel> channel) {
    const TimePoint start = Clock::now();
    while (true) {
        const auto received = co_await channel->receive();
        if (!received) co_return Clock::now() - start;
    }
}

/// Runs a small job to its end: proof that the daemon works.
awaitable<void> good_job(DaemonFixture& fixture) {
    const auto agent = fixture.agent(join_as("good"));
    co_await agent->join();
    const auto assignment = co_await agent->expect<Assignment>();
    agent->send(GroupSucceeded{assignment.generation});
    const auto finished = co_await agent->expect<Finished>();
    CHECK(finished.verdict.outcome == Outcome::kSucceeded);
}

}  // namespace

TEST_CASE("a first message that is not a join closes that connection alone", "[daemon][unit]") {
    const AgentMessage heartbeat = Heartbeat{};
    const AgentMessage long_join = join_as(std::string(5'000, 'h'));
    const auto text = GENERATE_COPY(as<std::string>{}, "", "hello", "{}", "{\"type\":\"join\"}", encode(heartbeat),
                                    encode(long_join), std::string(100'000, '['));
    auto config = quick_config();
    config.handshake_time = 10s;
    DaemonFixture fixture(config);
    const auto test = [&]() -> awaitable<void> {
        const auto channel = co_await raw_channel(fixture);
        channel->send(text);
        const Duration took = co_await until_closed(channel);
        CHECK(took < 5s);  // at once, and not at the deadline
        co_await good_job(fixture);
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("a connection that upgrades and does not join is closed at the deadline", "[daemon][unit]") {
    DaemonFixture fixture;
    const auto test = [&]() -> awaitable<void> {
        const auto channel = co_await raw_channel(fixture);
        const Duration took = co_await until_closed(channel);
        CHECK(took < 8s);
        co_await good_job(fixture);
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("a bad message of an agent that has joined ends its connection, and the node is lost", "[daemon][unit]") {
    const AgentMessage again = join_as("n2", 1, 2);
    const auto text = GENERATE_COPY(as<std::string>{}, "garbage", "{\"type\":\"group_stopped\"}", encode(again));
    DaemonFixture fixture;
    const auto test = [&]() -> awaitable<void> {
        const auto n1 = fixture.agent(join_as("n1", 1, 2));
        co_await n1->join();
        const auto bad = co_await raw_channel(fixture);
        const AgentMessage join = join_as("n2", 1, 2);
        bad->send(encode(join));
        const auto assignment = co_await n1->expect<Assignment>();
        CHECK(assignment.node_count == 2);
        bad->send(text);
        co_await until_closed(bad);
        const auto abort = co_await n1->expect<Abort>();
        n1->send(GroupStopped{abort.generation});
        const auto next = co_await n1->expect<Assignment>();
        CHECK(next.node_count == 1);
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("a node of another job is refused with the reason, and an agent takes over from its older connection",
          "[daemon][unit]") {
    DaemonFixture fixture;
    const auto test = [&]() -> awaitable<void> {
        const auto n1 = fixture.agent(join_as("n1", 2, 2));
        co_await n1->join();
        auto other_run = join_as("n2", 2, 2);
        other_run.run_id = "another";
        for (const auto& join : {other_run, join_as("n4", 3, 3)}) {
            const auto agent = fixture.agent(join);
            co_await agent->join();
            const auto rejected = co_await agent->expect<Rejected>();
            CHECK_FALSE(rejected.reason.empty());
            const bool closed = co_await agent->is_closed();
            CHECK(closed);
        }
        CHECK(n1->end().empty());
        const auto again = fixture.agent(join_as("n1", 2, 2));
        co_await again->join();
        const bool closed = co_await n1->is_closed();
        CHECK(closed);
        const auto n2 = fixture.agent(join_as("n2", 2, 2));
        co_await n2->join();
        co_await again->expect<Assignment>();
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("strangers and silence do not keep a good agent out, even in a crowd", "[daemon][unit]") {
    DaemonFixture fixture;
    const auto test = [&]() -> awaitable<void> {
        std::vector<tcp::socket> crowd;
        for (std::size_t i = 0; i < daemon::kMaxStrangers + 50; ++i) {
            crowd.push_back(co_await dial_plain(fixture.endpoint().port));
            const std::string bytes = i % 3 == 0 ? "garbage" : i % 3 == 1 ? "GET / HTTP/1.1\r\n" : "";
            co_await asio::async_write(crowd.back(), asio::buffer(bytes), kTuple);
        }
        co_await good_job(fixture);
        for (tcp::socket& socket : crowd) co_await read_all(socket);  // each is closed, or this does not end
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("a port in use is an error that names it and says what to do", "[daemon][unit]") {
    const DaemonFixture fixture;
    asio::io_context io(1);
    auto config = quick_config();
    config.port = fixture.endpoint().port;
    const auto second = daemon::Daemon::listen(io.get_executor(), config);
    REQUIRE_FALSE(second.has_value());
    CHECK(second.error().code == Errc::kInUse);
    CHECK_THAT(second.error().message, Catch::Contains(to_string(fixture.endpoint())) &&
                                           Catch::Contains("held by pid " + std::to_string(::getpid())));
}

TEST_CASE("an address that this host does not have is an error that says so", "[daemon][unit]") {
    asio::io_context io(1);
    auto config = quick_config();
    config.bind = asio::ip::make_address("192.0.2.1");  // reserved for documentation
    const auto daemon = daemon::Daemon::listen(io.get_executor(), config);
    REQUIRE_FALSE(daemon.has_value());
    CHECK(daemon.error().code == Errc::kSystem);
    CHECK_THAT(daemon.error().message, Catch::Contains("192.0.2.1") && Catch::Contains("no such address"));
}

TEST_CASE("agents get the address at which each reached the daemon", "[daemon][unit]") {
    auto config = quick_config();
    config.bind = asio::ip::address_v6::any();
    asio::io_context probe(1);
    if (!daemon::Daemon::listen(probe.get_executor(), config)) {
        WARN("SKIPPED: no IPv6 here");
        return;
    }
    DaemonFixture fixture(config);
    const auto test = [&]() -> awaitable<void> {
        const std::uint16_t port = fixture.endpoint().port;
        const auto v4 = std::make_shared<FakeAgent>(fixture.io, Endpoint{"127.0.0.1", port}, join_as("n1", 2, 2));
        const auto v6 = std::make_shared<FakeAgent>(fixture.io, Endpoint{"::1", port}, join_as("n2", 2, 2));
        co_await v4->join();
        co_await v6->join();
        const auto by_v4 = co_await v4->expect<Assignment>();
        const auto by_v6 = co_await v6->expect<Assignment>();
        CHECK(by_v4.master_addr == "127.0.0.1");
        CHECK(by_v6.master_addr == "::1");
        for (const Assignment& given : {by_v4, by_v6}) {  // and its store listens there
            asio::ip::tcp::socket socket(fixture.io);
            const asio::ip::tcp::endpoint store(asio::ip::make_address(given.master_addr),
                                                static_cast<std::uint16_t>(given.master_port));
            boost::system::error_code ec;
            socket.connect(store, ec);
            CHECK(ec.message() == "Success");
        }
    };
    REQUIRE(run(fixture.io, test()));
}
