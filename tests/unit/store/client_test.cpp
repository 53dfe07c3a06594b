// The client, against our server and against stores that misbehave.
#include "rendezvous/store/client.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/store/client_socket.hpp"
#include "rendezvous/store/prefix_store.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/rig.hpp"
#include "tests/unit/store/server_thread.hpp"

namespace ddprun::store::test {
namespace {

using namespace std::chrono_literals;

Client connected(const Endpoint& endpoint) { return Client::connect(endpoint, soon()).value(); }

/// A listening socket on loopback that the test itself answers on.
class Listening {
public:
    Listening() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        REQUIRE(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
        REQUIRE(::listen(socket_.get(), 16) == 0);
        REQUIRE(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
        endpoint_ = {"127.0.0.1", ntohs(address.sin_port)};
    }
    [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }
    [[nodiscard]] UniqueFd accept() const { return UniqueFd(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
    /// Makes accept() return nothing.
    void stop() const { ::shutdown(socket_.get(), SHUT_RDWR); }

private:
    UniqueFd socket_;
    Endpoint endpoint_;
};

/// Takes `sizes[i]` bytes and answers `answers[i]`, one after the other, then ends the connection. The first exchange
/// is the client's greeting, whose nonce is sent back.
class ScriptedStore {
public:
    using Script = std::vector<std::pair<std::size_t, std::string>>;
    explicit ScriptedStore(Script script) : thread_([this, script = std::move(script)] { play(script); }) {}
    ~ScriptedStore() { thread_.join(); }
    ScriptedStore(const ScriptedStore&) = delete;
    ScriptedStore& operator=(const ScriptedStore&) = delete;
    [[nodiscard]] const Endpoint& endpoint() const { return listening_.endpoint(); }

private:
    void play(const Script& script) const {
        const UniqueFd peer = listening_.accept();
        std::array<char, 10> greeting{};
        if (!receive_all(peer.get(), greeting, soon())) return;
        if (!send_all(peer.get(), std::string_view(greeting.data() + 6, 4), soon())) return;
        for (const auto& [size, answer] : script) {
            std::string request(size, '\0');
            if (!receive_all(peer.get(), request, soon()) || !send_all(peer.get(), answer, soon())) return;
        }
    }

    Listening listening_;
    std::thread thread_;
};

TEST_CASE("client: every operation, against the server") {
    ServerThread server;
    Client client = connected(server.endpoint());
    CHECK(client.set("/a", "hello").has_value());
    CHECK(client.get("/a", soon()).value() == "hello");
    CHECK(client.add("/n", 5).value() == 5);
    CHECK(client.add("/n", -7).value() == -2);
    CHECK(client.compare_set("/c", "old", "new").value() == "old");
    CHECK(client.compare_set("/c", "", "v1").value() == "v1");
    CHECK(client.num_keys().value() == 3);
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

TEST_CASE("client: a wait that times out says for what, how long and where, and leaves the client usable") {
    ServerThread server;
    Client client = connected(server.endpoint());
    const auto value = client.get("x", Clock::now() + 100ms);
    REQUIRE_FALSE(value.has_value());
    CHECK(value.error().code == Errc::kTimeout);
    CHECK(value.error().message ==
          "waited 0.1 s for key 'x' at " + to_string(server.endpoint()) + ": not set; the store is empty");

    CHECK(client.set("x", "1").has_value());
    CHECK(client.get("x", soon()).value() == "1");
    const std::vector<std::string> keys{"x", "new\nline", "z"};
    const auto waited = client.wait(keys, Clock::now() - 1s);  // a deadline that has passed asks once
    REQUIRE_FALSE(waited.has_value());
    CHECK(waited.error().message == "waited 0.0 s for keys 'x', 'new?line', 'z' at " + to_string(server.endpoint()) +
                                        ": 'new?line', 'z' are not set; the store holds 1 key");
    CHECK(client.num_keys().value() == 1);
}

TEST_CASE("client: W5, a key that comes while the client gives up counts as come") {
    // WAIT for "x" is 18 bytes, CANCEL_WAIT is one, CHECK is 18 again.
    ScriptedStore store({{18, ""}, {1, std::string("\0\1", 2)}, {18, std::string("\1", 1)}});
    Client client = connected(store.endpoint());
    const std::vector<std::string> keys{"x"};
    CHECK(client.wait(keys, Clock::now() + 50ms).has_value());
    CHECK_FALSE(client.check(keys).value());  // and the stream is in step
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
    const auto later = client.num_keys();
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

TEST_CASE("client: a reply that announces more than comes is an error, not a reservation") {
    std::string reply;
    wire::append_number(reply, ~std::uint64_t{0});
    ScriptedStore store({{18, std::string(1, '\0')}, {10, reply + "few"}});
    Client client = connected(store.endpoint());
    const auto value = client.get("x", soon());
    REQUIRE_FALSE(value.has_value());
    CHECK(value.error().code == Errc::kClosed);
}

TEST_CASE("client: nobody listens there: kUnreachable with the number of tries and the cause") {
    Endpoint nobody;
    { nobody = Listening().endpoint(); }
    const auto client = Client::connect(nobody, Clock::now() + 500ms);
    REQUIRE_FALSE(client.has_value());
    CHECK(client.error().code == Errc::kUnreachable);
    CHECK_THAT(client.error().message, Catch::Matches("cannot reach the store at 127\\.0\\.0\\.1:\\d+: connect: "
                                                      "Connection refused, [2-9] tries in 0\\.\\d s\\. .*"));
}

TEST_CASE("client: an unknown host is unreachable") {
    const auto client = Client::connect(Endpoint{"host name with blanks", 1}, Clock::now());
    REQUIRE_FALSE(client.has_value());
    CHECK(client.error().code == Errc::kUnreachable);
    CHECK_THAT(client.error().message,
               Catch::Contains("host 'host name with blanks' is unknown") && Catch::Contains("1 try in 0.0 s"));
}

TEST_CASE("client: what listens but never answers is a timeout") {
    const Listening listening;
    const auto client = Client::connect(listening.endpoint(), Clock::now() + 100ms);
    REQUIRE_FALSE(client.has_value());
    CHECK(client.error().code == Errc::kTimeout);
    CHECK_THAT(client.error().message,
               Catch::Contains("something listens there and does not answer") && Catch::Contains("Is the port right?"));
}

TEST_CASE("client: what listens but is no store is said so") {
    const Listening listening;
    std::thread answers([&] {
        while (const UniqueFd peer = listening.accept())
            (void)send_all(peer.get(), "HTTP/1.1 400 Bad Request\r\n\r\n", soon());
    });
    const auto client = Client::connect(listening.endpoint(), Clock::now() + 300ms);
    listening.stop();
    answers.join();
    REQUIRE_FALSE(client.has_value());
    CHECK(client.error().code == Errc::kMismatch);
    CHECK_THAT(client.error().message, Catch::Contains("an HTTP server answers there, not a TCPStore, 1 try in ") &&
                                           Catch::Contains("Is the port right?"));
}

TEST_CASE("client: what accepts connections and ends them is said so, and tried again") {
    const Listening listening;
    std::atomic<int> accepted = 0;
    std::thread ends([&] {
        while (const UniqueFd peer = listening.accept()) ++accepted;
    });
    const auto client = Client::connect(listening.endpoint(), Clock::now() + 300ms, "rank 3");
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

TEST_CASE("client: who waited in vain learns who waited, what is missing and what is there instead") {
    ServerThread server;
    Client client = Client::connect(server.endpoint(), soon(), "rank 3").value();
    const std::string at = " at " + to_string(server.endpoint()) + ": ";
    CHECK(client.multi_set({{"job/address/0", "x"}, {"job/address/2", "x"}, {"other", "x"}}).has_value());
    const std::vector<std::string> keys{"job/address/0", "job/address/1"};
    CHECK(client.multi_get(keys, Clock::now()).error().message ==
          "rank 3 waited 0.0 s for keys 'job/address/0', 'job/address/1'" + at +
              "'job/address/1' is not set; keys with that prefix: 'job/address/0', 'job/address/2'");
    CHECK(client.get("job/gone/1", Clock::now()).error().message ==
          "rank 3 waited 0.0 s for key 'job/gone/1'" + at +
              "not set; no key begins with 'job/gone/', the store holds 3 keys");
    for (int i = 0; i < 20; ++i) CHECK(client.add("many/" + std::to_string(10 + i), 1).value() == 1);
    CHECK_THAT(client.get("many/x", Clock::now()).error().message,
               Catch::Contains("'many/10', ") && Catch::EndsWith(" and 12 more"));
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

TEST_CASE("client: prefixes nest as PyTorch's PrefixStore does") {
    ServerThread server;
    Client client = connected(server.endpoint());
    const PrefixStore torch(client, "");
    const PrefixStore outer(torch, "p");
    const PrefixStore inner(outer, "q");
    CHECK(inner.set("k", "v").has_value());
    CHECK(client.get("/p/q/k", soon()).value() == "v");
    CHECK(torch.get("p/q/k", soon()).value() == "v");
    CHECK(outer.add("n", 2).value() == 2);
    const std::vector<std::string> names{"q/k", "n"};
    CHECK(outer.check(names).value());
    CHECK(outer.multi_get(names, soon()).value() == std::vector<std::string>{"v", "2"});
    CHECK(outer.delete_key("n").value());
    CHECK_THAT(inner.get("none", Clock::now()).error().message, Catch::Contains("'/p/q/none'"));
}

TEST_CASE("client: it goes on trying until the server is there") {
    Endpoint endpoint;
    { endpoint = Listening().endpoint(); }
    REQUIRE_FALSE(Client::connect(endpoint, Clock::now()).has_value());  // nobody there yet
    std::atomic<bool> connected = false;
    std::thread early([&] { connected = Client::connect(endpoint, soon()).has_value(); });
    std::this_thread::sleep_for(50ms);  // time for some tries that fail; whether they do changes nothing
    {
        ServerThread server("127.0.0.1", endpoint.port);
        early.join();
    }
    CHECK(connected);
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
