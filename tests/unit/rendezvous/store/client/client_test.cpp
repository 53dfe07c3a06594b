// The client, against our server.
#include "rendezvous/store/client/client.hpp"
#include "rendezvous/store/client/key_text.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/rendezvous/store/client/scripted_store.hpp"
#include "tests/unit/rendezvous/store/server/server_thread.hpp"

namespace ddprun::store::test {
namespace {

using namespace std::chrono_literals;

TEST_CASE("client: every operation, against the server") {
    ServerThread server;
    Client client = connected(server.endpoint());
    CHECK(client.set("/a", "hello").has_value());
    CHECK(client.get("/a", soon()).value() == "hello");
    CHECK(client.add("/n", 5).value() == 5);
    CHECK(client.add("/n", -7).value() == -2);
    CHECK(client.compare_set("/c", "old", "new").value() == "old");
    CHECK(client.compare_set("/c", "", "v1").value() == "v1");
    CHECK(missing_key_hint(server.endpoint(), "none") == "; the store holds 3 keys");
    const std::vector<std::string> both{"/a", "/n"};
    const std::vector<std::string> one_missing{"/a", "/none"};
    CHECK(client.wait(both, soon()).has_value());
    CHECK(client.check(both).value());
    CHECK_FALSE(client.check(one_missing).value());
    CHECK(client.delete_key("/n").value());
    CHECK_FALSE(client.delete_key("/n").value());
    CHECK(client.local_address() == "127.0.0.1");
    CHECK(client.endpoint() == server.endpoint());
}

TEST_CASE("client: values of no bytes and of many, keys of any bytes") {
    ServerThread server;
    Client client = connected(server.endpoint());
    const std::string key("\0/\xff\n", 4);
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, (std::size_t{8} << 20) + 1}) {
        const std::string value(size, 'v');
        CHECK(client.set(key, value).has_value());
        CHECK(client.get(key, soon()).value() == value);
    }
}

TEST_CASE("client: 64 clients wait for one key, and one sets it") {
    ServerThread server;
    std::atomic<int> released = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 64; ++i) {
        threads.emplace_back([&] {
            auto client = Client::connect(server.endpoint(), soon());
            if (!client || !client->add("/arrived", 1)) return;
            const auto value = client->get("/go", soon());
            if (value && *value == "now") ++released;
        });
    }
    Client leader = connected(server.endpoint());
    while (leader.add("/arrived", 0).value() < 64) std::this_thread::sleep_for(1ms);
    CHECK(leader.set("/go", "now").has_value());
    for (std::thread& thread : threads) thread.join();
    CHECK(released == 64);
}

TEST_CASE("client: multi_get, multi_set, append, missing") {
    ServerThread server;
    Client client = connected(server.endpoint());
    CHECK(client.multi_set({{"a/1", "one"}, {"a/2", ""}}).has_value());
    CHECK(client.append("a/2", "two").has_value());
    const std::vector<std::string> keys{"a/2", "a/1", "a/2"};
    CHECK(client.multi_get(keys, soon()).value() == std::vector<std::string>{"two", "one", "two"});
    CHECK(client.multi_get({}, soon()).value().empty());
    const std::vector<std::string> some{"a/1", "a/3", "b"};
    CHECK(client.missing(some).value() == std::vector<std::string>{"a/3", "b"});
}

TEST_CASE("client: a batch goes out in one write and is answered in order") {
    ServerThread server;
    Client client = connected(server.endpoint());
    Batch batch;
    const std::vector<std::string> keys{"n", "none"};
    batch.set("k", "v");
    batch.add("n", 5);
    batch.get("k");
    batch.append("k", "w");
    batch.check(keys);
    batch.delete_key("n");
    batch.get("k");
    const auto answers = client.run(batch).value();
    REQUIRE(answers.size() == 7);
    CHECK(answers[1].number == 5);
    CHECK(answers[2].bytes == "v");
    CHECK(answers[4].number == 1);
    CHECK(answers[5].number == 1);
    CHECK(answers[6].bytes == "vw");
}

TEST_CASE("client: a batch whose answers are more than the server holds back comes through") {
    // The server stops reading at 256 KiB of unsent answers; a client that only wrote would wait for ever.
    ServerThread server;
    Client client = connected(server.endpoint());
    CHECK(client.set("k", std::string(10'000, 'v')).has_value());
    Batch batch;
    for (int i = 0; i < 5'000; ++i) batch.get("k");
    batch.set("padding", std::string(std::size_t{4} << 20, 'p'));
    batch.add("n", 1);
    const auto answers = client.run(batch).value();
    CHECK(answers[4'999].bytes.size() == 10'000);
    CHECK(answers.back().number == 1);
}

TEST_CASE("client: over IPv6") {
    std::unique_ptr<ServerThread> server;
    try {
        server = std::make_unique<ServerThread>("::1");
    } catch (const ErrorException& e) {
        WARN("SKIPPED: " << e.what());
        return;
    }
    Client client = connected(server->endpoint());
    CHECK(client.add("/n", 1).value() == 1);
    CHECK(client.local_address() == "::1");
}

}  // namespace
}  // namespace ddprun::store::test
