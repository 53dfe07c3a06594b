// Clients of PyTorch's TCPStore at the daemon's control port: they reach the store of the current generation, or none.
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <future>

#include "rendezvous/daemon/store_clients.hpp"
#include "rendezvous/store/client/client.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/daemon/daemon_fixture.hpp"

using namespace ddprun;
using namespace ddprun::test;
using namespace ddprun::protocol;
using namespace ddprun::coordinator;

namespace {

const std::string kValidateBytes("\0\xce\xf7\x85\x3c", 5);
const std::string kSetInOldDialect("\0\x02\0\0\0\0\0\0\0/a\x01\0\0\0\0\0\0\0x", 1 + 10 + 9);
const std::string kCountKeysInOldDialect("\x06", 1);
const std::string kValidateAndCountKeys = kValidateBytes + "\x07";

std::string set_and_get(const Endpoint& writer, const Endpoint& reader) {
    auto one = store::Client::connect(writer, in(5s)).value();
    auto other = store::Client::connect(reader, in(5s)).value();
    one.set("/key", "value").value();
    return other.get("/key", in(5s)).value();
}

awaitable<tcp::socket> dial_and_send(const DaemonFixture& fixture, std::string bytes) {
    tcp::socket socket = co_await dial_plain(fixture.endpoint().port);
    co_await asio::async_write(socket, asio::buffer(bytes), kTuple);
    co_return socket;
}

/// Returns the number of keys that the store reports to this client; -1 if the connection is closed instead.
awaitable<std::int64_t> count_keys(tcp::socket& socket, const std::string& request) {
    co_await asio::async_write(socket, asio::buffer(request), kTuple);
    std::int64_t count = 0;
    const auto [ec, n] = co_await asio::async_read(socket, asio::buffer(&count, sizeof count), kTuple);
    co_return ec ? -1 : count;
}

}  // namespace

TEST_CASE("a TCPStore client of the control port reaches the store of the generation", "[daemon][unit]") {
    DaemonFixture fixture;
    const auto test = [&]() -> awaitable<void> {
        const auto agent = fixture.agent(join_as("n1"));
        co_await agent->join();
        const auto assignment = co_await agent->expect<Assignment>();
        const Endpoint own{assignment.master_addr, static_cast<std::uint16_t>(assignment.master_port)};
        const Endpoint named = fixture.endpoint();
        // The client blocks, and the daemon needs this thread.
        auto value = std::async(std::launch::async, [&] { return set_and_get(named, own); });
        co_await eventually([&] { return value.wait_for(0s) == std::future_status::ready; });
        CHECK(value.get() == "value");
        agent->send(GroupSucceeded{assignment.generation});
        co_await agent->expect<Finished>();
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("without a worker group a TCPStore client is closed at once", "[daemon][unit]") {
    auto config = quick_config();
    config.handshake_time = 10s;
    DaemonFixture fixture(config);
    const auto test = [&]() -> awaitable<void> {
        tcp::socket client = co_await dial_and_send(fixture, kValidateBytes);
        const TimePoint start = Clock::now();
        const std::string answer = co_await read_all(client);
        CHECK(answer.empty());
        CHECK(Clock::now() - start < 5s);
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("a client ends with the store of its generation, and the next store at the same port is empty",
          "[daemon][unit]") {
    DaemonFixture fixture;
    const auto test = [&]() -> awaitable<void> {
        const auto n1 = fixture.agent(join_as("n1", 1, 2));
        const auto n2 = fixture.agent(join_as("n2", 1, 2));
        co_await n1->join();
        co_await n2->join();
        const auto first = co_await n1->expect<Assignment>();
        co_await n2->expect<Assignment>();
        tcp::socket old_client = co_await dial_and_send(fixture, kSetInOldDialect);
        const std::int64_t keys = co_await count_keys(old_client, kCountKeysInOldDialect);
        CHECK(keys == 1);

        n2->crash();
        co_await n1->expect<Abort>();
        // Nothing is read from this one before the next store opens.
        tcp::socket silent = co_await dial_plain(fixture.endpoint().port);
        n1->send(GroupStopped{first.generation});
        co_await n1->expect<Assignment>();
        const std::int64_t keys_of_old_client = co_await count_keys(old_client, kCountKeysInOldDialect);
        CHECK(keys_of_old_client == -1);
        const std::int64_t keys_of_silent = co_await count_keys(silent, kValidateAndCountKeys);
        CHECK(keys_of_silent == -1);
        tcp::socket next = co_await dial_plain(fixture.endpoint().port);
        const std::int64_t keys_of_next = co_await count_keys(next, kValidateAndCountKeys);
        CHECK(keys_of_next == 0);
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("the silent second connection of a PyTorch 1.13 client stays open, that of a stranger does not",
          "[daemon][unit]") {
    auto config = quick_config();
    config.handshake_time = 300ms;
    DaemonFixture fixture(config);
    const auto test = [&]() -> awaitable<void> {
        const auto agent = fixture.agent(join_as("n1"));
        co_await agent->join();
        const auto assignment = co_await agent->expect<Assignment>();
        tcp::socket stranger = co_await dial_plain(fixture.endpoint().port);
        co_await read_all(stranger);

        tcp::socket client = co_await dial_and_send(fixture, kSetInOldDialect);
        const std::int64_t keys = co_await count_keys(client, kCountKeysInOldDialect);
        CHECK(keys == 1);
        tcp::socket second = co_await dial_plain(fixture.endpoint().port);
        co_await pause(900ms);  // three times the time that a stranger has
        const std::int64_t keys_of_second = co_await count_keys(second, kCountKeysInOldDialect);
        CHECK(keys_of_second == 1);
        agent->send(GroupSucceeded{assignment.generation});
        co_await agent->expect<Finished>();
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("clients from the address of a lost node are kept out, unless a member is there, too", "[daemon][unit]") {
    State job{Config{}};
    const auto add = [&](const char* id, Link link, std::optional<Generation> busy) {
        Node node;
        node.link = link;
        node.busy = busy;
        job.nodes.add(id, node);
    };
    add("lost", Link::kLost, Generation{1});
    add("idle", Link::kLost, {});
    add("member", Link::kConnected, Generation{2});
    job.group.generation = Generation{2};
    job.group.members["member"] = {};
    daemon::Origins origins{{"lost", "10.0.0.1"}, {"idle", "10.0.0.2"}, {"member", "10.0.0.3"}};
    CHECK(daemon::may_be_outdated(job, origins, "10.0.0.1"));
    CHECK_FALSE(daemon::may_be_outdated(job, origins, "10.0.0.2"));  // lost without a process
    CHECK_FALSE(daemon::may_be_outdated(job, origins, "10.0.0.3"));
    CHECK_FALSE(daemon::may_be_outdated(job, origins, "10.0.0.9"));
    origins["member"] = "10.0.0.1";
    CHECK_FALSE(daemon::may_be_outdated(job, origins, "10.0.0.1"));
    add("back", Link::kConnected, Generation{1});  // it has reconnected, and its older workers have not stopped yet
    origins["back"] = "10.0.0.4";
    CHECK(daemon::may_be_outdated(job, origins, "10.0.0.4"));
}

TEST_CASE("of other hosts those of the group's members have clients, and no others", "[daemon][unit]") {
    asio::io_context io(1);
    daemon::GenerationStores stores(io.get_executor(), asio::ip::address_v4::loopback());
    daemon::StoreClients clients(stores, true);
    State job{Config{}};
    job.group.generation = Generation{1};
    job.group.members["n1"] = {};
    clients.note_origin(job, "n1", "10.0.0.1");
    clients.note_origin(job, "spare", "10.0.0.2");
    CHECK(clients.is_of_member(job, "10.0.0.1"));
    CHECK_FALSE(clients.is_of_member(job, "10.0.0.2"));
    clients.note_origin(job, "n1", "10.0.0.3");  // it has reconnected
    CHECK(clients.is_of_member(job, "10.0.0.3"));
    CHECK_FALSE(clients.is_of_member(job, "10.0.0.1"));
    job.group.generation = Generation{2};
    job.group.members = {};
    job.group.members["spare"] = {};
    CHECK(clients.is_of_member(job, "10.0.0.2"));
    CHECK_FALSE(clients.is_of_member(job, "10.0.0.3"));
}
