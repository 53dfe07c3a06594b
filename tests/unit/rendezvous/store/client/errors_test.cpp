// The client's errors: late keys, stores that misbehave, and servers that are not stores.
#include <array>
#include <atomic>
#include <chrono>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/store/client/client.hpp"
#include "rendezvous/store/client/stream.hpp"
#include "tests/catch.hpp"
#include "tests/machine_pauses.hpp"
#include "tests/unit/rendezvous/store/client/scripted_store.hpp"
#include "tests/unit/rendezvous/store/rig.hpp"
#include "tests/unit/rendezvous/store/server/server_thread.hpp"

namespace ddprun::store::test {
namespace {

using namespace std::chrono_literals;

/// "waited 0.1 s for key" becomes "waited a while for key": a busy machine may make it more.
std::string timeless(const std::string& message) {
    return std::regex_replace(message, std::regex("waited \\d+\\.\\d s "), "waited a while ");
}

TEST_CASE("client: a wait that times out says for what, how long and where, and leaves the client usable") {
    ServerThread server;
    Client client = connected(server.endpoint());
    const auto value = client.get("x", Clock::now() + 100ms);
    REQUIRE_FALSE(value.has_value());
    CHECK(value.error().code == Errc::kTimeout);
    CHECK(timeless(value.error().message) ==
          "waited a while for key 'x' at " + to_string(server.endpoint()) + ": not set; the store is empty");

    CHECK(client.set("x", "1").has_value());
    CHECK(client.get("x", soon()).value() == "1");
    const std::vector<std::string> keys{"x", "new\nline", "z"};
    const auto waited = client.wait(keys, Clock::now() - 1s);  // a deadline that has passed asks once
    REQUIRE_FALSE(waited.has_value());
    CHECK(timeless(waited.error().message) == "waited a while for keys 'x', 'new?line', 'z' at " +
                                                  to_string(server.endpoint()) +
                                                  ": 'new?line', 'z' are not set; the store holds 1 key");
    CHECK(client.missing(keys).value() == std::vector<std::string>{"new\nline", "z"});

    std::string long_key = "a";
    for (int i = 0; i < 80; ++i) long_key += "é";
    CHECK_THAT(client.get(long_key, Clock::now() + 10ms).error().message,
               Catch::Contains(" for key '" + long_key.substr(0, 117) + "…' at "));  // cut between two characters
}

TEST_CASE("client: W5, a key that arrives while the client cancels its wait counts as arrived") {
    // WAIT for "x" is 18 bytes, CANCEL_WAIT is one, CHECK is 18 again.
    ScriptedStore store({{18, ""}, {1, std::string("\0\1", 2)}, {18, std::string("\1", 1)}});
    Client client = connected(store.endpoint());
    const std::vector<std::string> keys{"x"};
    CHECK(client.wait(keys, Clock::now() + 50ms).has_value());
    CHECK_FALSE(client.check(keys).value());  // and the position in the stream is right
}

TEST_CASE("client: a store that ends the connection, or answers nonsense, makes the client give up for good") {
    ScriptedStore store({{18, std::string("\7", 1)}});
    Client client = connected(store.endpoint());
    const std::vector<std::string> keys{"x"};
    const auto waited = client.wait(keys, soon());
    REQUIRE_FALSE(waited.has_value());
    CHECK(waited.error().code == Errc::kMalformed);
    CHECK(waited.error().message ==
          "cannot wait for key 'x' at " + to_string(store.endpoint()) + ": unexpected answer 7");
    const auto later = client.delete_key("x");
    REQUIRE_FALSE(later.has_value());
    CHECK(later.error().code == Errc::kClosed);
}

TEST_CASE("client: the end of the server is an error of the operation under way") {
    ServerThread server;
    Client client = connected(server.endpoint());
    server.close();
    const auto value = client.get("x", soon());
    REQUIRE_FALSE(value.has_value());
    CHECK(value.error().code == Errc::kClosed);
    CHECK_THAT(value.error().message,
               Catch::StartsWith("cannot wait for key 'x' at " + to_string(server.endpoint()) + ": "));
}

TEST_CASE("client: a reply that announces more than arrives is an error, not a reservation") {
    std::string reply;
    wire::append_number(reply, ~std::uint64_t{0});
    ScriptedStore store({{18, std::string(1, '\0')}, {10, reply + "few"}});
    Client client = connected(store.endpoint());
    const auto value = client.get("x", soon());
    REQUIRE_FALSE(value.has_value());
    CHECK(value.error().code == Errc::kClosed);
}

TEST_CASE("client: a port on which nothing listens is kUnreachable, with the number of tries and the cause") {
    Endpoint unused;
    { unused = Listening().endpoint(); }
    const auto client = Client::connect(unused, Clock::now() + 500ms);
    REQUIRE_FALSE(client.has_value());
    CHECK(client.error().code == Errc::kUnreachable);
    CHECK_THAT(client.error().message, Catch::Matches("cannot reach the store at 127\\.0\\.0\\.1:\\d+: connect: "
                                                      "Connection refused, \\d+ tries in \\d+\\.\\d s\\. .*"));
}

TEST_CASE("client: all of the time until the deadline is used") {
    Endpoint unused;
    { unused = Listening().endpoint(); }
    const TimePoint begun = Clock::now();
    REQUIRE_FALSE(Client::connect(unused, begun + 1s).has_value());
    CHECK(Clock::now() - begun > 950ms);
}

TEST_CASE("client: a large value that goes out slowly, but goes, does not time out") {
    const Listening listening;
    ClientStream stream(connect_socket(listening.endpoint(), soon()).value());
    const UniqueFd slow = listening.accept();
    const std::string value(std::size_t{24} << 20, 'v');
    std::thread reads([&] {
        std::string piece(64 << 10, '\0');
        for (std::size_t got = 0; got < value.size(); got += piece.size()) {
            std::this_thread::sleep_for(8ms);
            if (!receive_all(slow.get(), piece, soon())) return;
        }
    });
    const TimePoint begun = Clock::now();
    // Less than the sum of the reader's pauses, and more than a busy machine delays one of them.
    constexpr auto kTimeout = 1500ms;
    CHECK(stream.send(value, kTimeout).has_value());
    CHECK(Clock::now() - begun > kTimeout);
    stream.close();
    reads.join();
}

TEST_CASE("client: an unknown host is unreachable") {
    const auto client = Client::connect(Endpoint{"host name with blanks", 1}, Clock::now());
    REQUIRE_FALSE(client.has_value());
    CHECK(client.error().code == Errc::kUnreachable);
    CHECK_THAT(client.error().message,
               Catch::Contains("host 'host name with blanks' is unknown") && Catch::Contains("1 try in "));
}

TEST_CASE("client: a server that accepts and never answers is a timeout") {
    const Listening listening;
    const auto client = Client::connect(listening.endpoint(), Clock::now() + 100ms);
    REQUIRE_FALSE(client.has_value());
    CHECK(client.error().code == Errc::kTimeout);
    CHECK_THAT(client.error().message,
               Catch::Contains("something listens there and does not answer") && Catch::Contains("Is the port right?"));
}

TEST_CASE("client: a slow connect is reported once with its cause, also where one try would take all the time") {
    const Listening silent;
    Endpoint unused;
    { unused = Listening().endpoint(); }
    for (const Endpoint& endpoint : {silent.endpoint(), unused}) {
        std::vector<std::string> reports;
        const SlowNotice notice{.after = 450ms, .report = [&](const std::string& text) { reports.push_back(text); }};
        // Less than half a second is left then; the report rounds that up to a second. Again if this machine stood
        // still for that long.
        for (int tries = 0; tries < 3; ++tries) {
            const MachinePauses pauses;
            reports.clear();
            REQUIRE_FALSE(Client::connect(endpoint, Clock::now() + 900ms, "rank 3", notice).has_value());
            if (pauses.sum() == 0ms) break;
        }
        REQUIRE(reports.size() == 1);
        const std::string cause = endpoint.port == unused.port ? "connect: Connection refused, \\d+ tries"
                                                               : "something listens there and does not answer, 1 try";
        CHECK_THAT(reports[0], Catch::Matches("rank 3 cannot reach the store at 127\\.0\\.0\\.1:\\d+ so far: " + cause +
                                              " in 0\\.\\d s; going on for up to 1 s\\. .*\\?.*"));
        reports.clear();
        REQUIRE_FALSE(Client::connect(endpoint, Clock::now() + 100ms, "rank 3", notice).has_value());
        CHECK(reports.empty());
    }
}

TEST_CASE("client: a server that is not a store is named in the error") {
    const Listening listening;
    std::thread answers([&] {
        while (const UniqueFd peer = listening.accept())
            (void)send_all(peer.get(), "HTTP/1.1 400 Bad Request\r\n\r\n", soon());
    });
    const auto client = Client::connect(listening.endpoint(), soon());  // one answer is enough
    listening.stop();
    answers.join();
    REQUIRE_FALSE(client.has_value());
    CHECK(client.error().code == Errc::kMismatch);
    CHECK_THAT(client.error().message, Catch::Contains("an HTTP server answers there, not a TCPStore, 1 try in ") &&
                                           Catch::Contains("Is the port right?"));
}

TEST_CASE("client: a server that accepts connections and ends them is named in the error, and tried again") {
    const Listening listening;
    std::atomic<int> accepted = 0;
    std::thread ends([&] {
        while (const UniqueFd peer = listening.accept()) ++accepted;
    });
    const auto client = Client::connect(listening.endpoint(), Clock::now() + 1s, "rank 3");
    listening.stop();
    ends.join();
    REQUIRE_FALSE(client.has_value());
    CHECK(client.error().code == Errc::kUnreachable);
    CHECK(accepted > 1);
    CHECK_THAT(client.error().message, Catch::StartsWith("rank 3 cannot reach the store at ") &&
                                           Catch::Contains("accepts connections and ends them"));
}

TEST_CASE("client: a server that does not know PING, as PyTorch 2.2 to 2.4, is greeted without it") {
    const Listening listening;
    std::thread serves([&] {
        std::array<char, 10> greeting{};
        {
            const UniqueFd first = listening.accept();
            (void)receive_all(first.get(), greeting, soon());
        }
        const UniqueFd second = listening.accept();
        (void)receive_all(second.get(), std::span(greeting).first(6), soon());
        (void)send_all(second.get(), number(0), soon());
        std::array<char, 1> end{};
        (void)receive_all(second.get(), end, soon());
    });
    {
        const auto client = Client::connect(listening.endpoint(), soon());
        CHECK(client.has_value());
    }
    serves.join();
}

TEST_CASE("client: a wait that timed out names the waiter, the missing keys and the keys that are there instead") {
    ServerThread server;
    Client client = Client::connect(server.endpoint(), soon(), "rank 3").value();
    const std::string at = " at " + to_string(server.endpoint()) + ": ";
    CHECK(client.multi_set({{"job/address/0", "x"}, {"job/address/2", "x"}, {"other", "x"}}).has_value());
    const std::vector<std::string> keys{"job/address/0", "job/address/1"};
    CHECK(timeless(client.multi_get(keys, Clock::now()).error().message) ==
          "rank 3 waited a while for keys 'job/address/0', 'job/address/1'" + at +
              "'job/address/1' is not set; keys with that prefix: 'job/address/0', 'job/address/2'");
    CHECK(timeless(client.get("job/gone/1", Clock::now()).error().message) ==
          "rank 3 waited a while for key 'job/gone/1'" + at +
              "not set; no key begins with 'job/gone/', the store holds 3 keys");
    for (int i = 0; i < 20; ++i) CHECK(client.add("many/" + std::to_string(10 + i), 1).value() == 1);
    CHECK_THAT(client.get("many/x", Clock::now()).error().message,
               Catch::Contains("'many/10', ") && Catch::EndsWith(" and 12 more"));
}

TEST_CASE("client: a batch that the server refuses says how many were answered") {
    ServerThread server;
    Client client = connected(server.endpoint());
    Batch batch;
    batch.set("k", "no number");
    batch.add("n", 1);
    batch.add("k", 1);
    batch.add("n", 1);
    const auto answers = client.run(batch);
    REQUIRE_FALSE(answers.has_value());
    CHECK(answers.error().code == Errc::kClosed);
    CHECK_THAT(answers.error().message,
               Catch::StartsWith("cannot run 4 requests, of which 2 were answered, at 127.0.0.1:"));
}

TEST_CASE("client: it tries again until the server is there") {
    Endpoint endpoint;
    { endpoint = Listening().endpoint(); }
    REQUIRE_FALSE(Client::connect(endpoint, Clock::now()).has_value());  // nothing listens there yet
    std::atomic<bool> connected = false;
    std::thread early([&] { connected = Client::connect(endpoint, soon()).has_value(); });
    std::this_thread::sleep_for(50ms);  // time for some tries that fail; whether they do changes nothing
    {
        ServerThread server("127.0.0.1", endpoint.port);
        early.join();
    }
    CHECK(connected);
}

}  // namespace
}  // namespace ddprun::store::test
