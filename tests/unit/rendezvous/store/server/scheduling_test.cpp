// Scheduling of connections: none delays the others, and none sees half of a change.
#include <chrono>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/rendezvous/store/rig.hpp"
#include "tests/unit/rendezvous/store/server/captured_log.hpp"
#include "tests/unit/rendezvous/store/server/stepped_server.hpp"

namespace ddprun::store::test {
namespace {

using enum RequestKind;
using namespace std::chrono_literals;

TEST_CASE("server: a stream of large values and a flood of requests do not delay other requests") {
    Server server;
    RawPeer streaming = server.connect();
    RawPeer flooding = server.connect();
    RawPeer other = server.connect();
    const std::string set = request(kSet, "/big", std::string(8u << 20, 'v'));
    std::string gets;
    for (int i = 0; i < 100'000; ++i) gets += request(kGet, "/none");
    std::size_t set_bytes = 0;
    std::size_t get_bytes = 0;
    for (int round = 0; round < 100; ++round) {
        // As much as the sockets take, so that both always have more than a slice's worth.
        set_bytes += streaming.send_some(std::string_view(set).substr(set_bytes % set.size()));
        get_bytes += flooding.send_some(std::string_view(gets).substr(get_bytes % gets.size()));
        other.send(request(kGetNumKeys));
        server.server->serve(0ns);
        REQUIRE(other.receive_now() == number(server.server->statistics().keys));
    }
    CHECK(set_bytes > set.size());
}

/// Sends all of it to a server that is served meanwhile.
void send_large(Server& server, RawPeer& peer, std::string_view bytes) {
    while (!bytes.empty()) {
        bytes.remove_prefix(peer.send_some(bytes));
        server.settle();
    }
}

TEST_CASE("server: a MULTI_GET of very many keys does not delay other requests") {
    constexpr std::size_t kKeys = 50'000;
    Server server;
    RawPeer reader = server.connect();
    RawPeer other = server.connect();
    const std::string gets = request(kMultiGet, Keys(kKeys, "/none"));
    send_large(server, reader, std::string_view(gets).substr(0, gets.size() - 1));
    reader.send(gets.substr(gets.size() - 1));
    int answered_meanwhile = 0;
    do {
        other.send(request(kGetNumKeys));
        server.server->serve(0ns);
        REQUIRE(other.receive_now() == number(0));
        ++answered_meanwhile;
    } while (server.server->statistics().requests[static_cast<std::size_t>(kMultiGet)] == 0);
    CHECK(answered_meanwhile > 10);
    server.settle();
    CHECK(reader.receive(kKeys * 8) == std::string(kKeys * 8, '\0'));
}

TEST_CASE("server: R9, a MULTI_GET in progress sees all of a MULTI_SET or nothing") {
    constexpr std::size_t kKeys = 10'000;
    const std::size_t value_bytes = GENERATE(1, 2000);  // its replies are taken at once; they are not
    const auto value = [&](char c) { return std::string(value_bytes, c); };
    Server server;
    RawPeer reader = server.connect();
    RawPeer writer = server.connect();
    const Pairs before{{"/first", value('a')}, {"/last", value('a')}};
    const Pairs after{{"/first", value('b')}, {"/last", value('b')}};
    writer.send(request(kMultiSet, before));
    server.settle();
    Keys keys(kKeys, "/first");
    keys.back() = "/last";
    const std::string gets = request(kMultiGet, keys);
    send_large(server, reader, std::string_view(gets).substr(0, gets.size() - 1));
    reader.send(gets.substr(gets.size() - 1));
    server.server->serve(0ns);  // the first part
    writer.send(request(kMultiSet, after) + request(kGet, "/last"));
    server.server->serve(0ns);
    CHECK(writer.receive(8 + value_bytes) == bytes(value('b')));
    reader.send(request(kMultiGet, Keys{"/first", "/last"}));
    std::string replies;
    while (replies.size() < (kKeys + 2) * (8 + value_bytes)) {
        server.server->serve(1ms);
        const std::string more = reader.receive_now();
        replies += more;
    }
    std::string expected;
    for (std::size_t i = 0; i < kKeys; ++i) expected += bytes(value('a'));
    CHECK((replies == expected + bytes(value('b')) + bytes(value('b'))));
    server.settle();
    CHECK(server.server->statistics().buffer_bytes < 10'000);
}

TEST_CASE("server: R9, a MULTI_GET of more than a reply may hold does not delay a MULTI_SET, nor fill the memory") {
    const CapturedLog log;
    Limits limits;
    limits.reply_bytes = 4u << 20;
    Server server(limits);
    RawPeer reader = server.connect();
    RawPeer writer = server.connect();
    writer.send(request(kSet, "/a", std::string(2000, 'a')));
    server.settle();
    const std::string gets = request(kMultiGet, Keys(20'000, "/a"));
    send_large(server, reader, gets);
    CHECK(server.server->statistics().connections == 2);
    writer.send(request(kMultiSet, Pairs{{"/a", "1"}, {"/b", "2"}}) + request(kGetNumKeys));
    server.settle();
    CHECK(writer.receive(8) == number(2));
    CHECK(server.server->statistics().connections == 1);
    CHECK(log.text().find("MULTI_GET of more than 4194304 bytes") != std::string::npos);
}

TEST_CASE("server: requests behind a full output are served in order once it is received, without another byte") {
    Limits limits;
    limits.output_bytes = 1000;
    Server server(limits);
    RawPeer peer = server.connect();
    std::string many = request(kSet, "/v", std::string(300, 'v'));
    for (int i = 0; i < 150; ++i) many += request(kGet, "/v") + request(kAdd, "/n", std::int64_t{1});
    peer.send(many);
    server.settle();
    for (int i = 0; i < 150; ++i) REQUIRE(peer.receive(316) == bytes(std::string(300, 'v')) + number(i + 1));
}

}  // namespace
}  // namespace ddprun::store::test
