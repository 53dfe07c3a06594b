// The server on the test's own thread and clock, step by step, over real sockets.
#include "rendezvous/store/server/epoll_server.hpp"

#include <malloc.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/store/client/socket.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/store/rig.hpp"
#include "tests/unit/rendezvous/store/server/captured_log.hpp"
#include "tests/unit/rendezvous/store/server/stepped_server.hpp"

namespace ddprun::store::test {
namespace {

using enum RequestKind;
using namespace std::chrono_literals;

TEST_CASE("server: R15, silence in the middle of a request ends its connection after 60 s, not before") {
    const CapturedLog log;
    Server server;
    RawPeer stalled = server.connect();
    RawPeer slow = server.connect();
    const std::string set = request(kSet, "/a", "value");
    stalled.send(set.substr(0, 10));
    slow.send(set.substr(0, 10));
    server.settle();
    CHECK(server.server->deadline().has_value());
    server.pass(55s);
    slow.send(set.substr(10, 1));
    server.settle();
    CHECK(server.server->statistics().connections == 2);
    server.pass(20s);
    CHECK(stalled.is_closed());
    CHECK(log.text().find("it sent nothing for 60 s in the middle of a request") != std::string::npos);
    slow.send(set.substr(11) + request(kGet, "/a"));
    server.settle();
    CHECK(slow.receive(13) == bytes("value"));
    server.pass(1000s);
    CHECK(server.server->statistics().connections == 1);
}

TEST_CASE("server: R6, R13, neither silent nor idle nor waiting connections are ever closed") {
    Server server;
    RawPeer silent(server.endpoint);
    RawPeer idle = server.connect();
    RawPeer waiting = server.connect();
    waiting.send(request(kWait, Keys{"/x"}));
    server.settle();
    for (int day = 0; day < 30; ++day) server.pass(24h);
    CHECK_FALSE(server.server->deadline().has_value());  // nothing to look after: an idle server sleeps
    idle.send(request(kSet, "/x", ""));
    silent.send(request(6));
    server.settle();
    CHECK(waiting.receive(1) == kStop);
    CHECK(silent.receive(8) == number(1));
}

TEST_CASE("server: a client that does not receive its replies is not a stalled request") {
    Server server;
    RawPeer slow = server.connect();
    slow.send(request(kSet, "/v", std::string(1 << 20, 'v')));
    std::string many;
    for (int i = 0; i < 40; ++i) many += request(kGet, "/v");
    slow.send(many + request(kGetNumKeys) + request(kGet, "/v").substr(0, 5));
    server.settle();
    server.pass(1000s);
    CHECK(server.server->statistics().connections == 1);
    CHECK(server.server->statistics().buffer_bytes < 100'000);  // forty references to one value
}

TEST_CASE("listener: the kernel finds out whether the host of an idle client is still there") {
    const Listener listener = Listener::open("127.0.0.1", 0).value();
    const RawPeer peer(Endpoint{"127.0.0.1", listener.port()});
    const Listener::Accepted accepted = listener.accept();
    REQUIRE(accepted.socket);
    for (const auto& [level, option] : {std::pair<int, int>{SOL_SOCKET, SO_KEEPALIVE}, {IPPROTO_TCP, TCP_NODELAY}}) {
        int on = 0;
        socklen_t size = sizeof on;
        REQUIRE(::getsockopt(accepted.socket.get(), level, option, &on, &size) == 0);
        CHECK(on == 1);
    }
    CHECK(advice_after(ENOSPC).find("fs.epoll.max_user_watches") != std::string::npos);
}

TEST_CASE("server: connections above the limit wait to be accepted") {
    const CapturedLog log;
    Limits limits;
    limits.connections = 2;
    Server server(limits);
    auto first = std::make_unique<RawPeer>(server.connect());
    RawPeer second = server.connect();
    RawPeer third = server.connect();
    third.send(request(kGetNumKeys));
    server.settle();
    CHECK(server.server->statistics().connections == 2);
    CHECK(third.is_silent());
    CHECK(log.text().find("has 2 connections, which is its limit") != std::string::npos);
    first.reset();
    server.settle();
    CHECK(third.receive(8) == number(0));
}

TEST_CASE("server: connections of one address above the limit are closed, and the log is not flooded") {
    const CapturedLog log;
    Limits limits;
    limits.connections_per_address = 1;
    Server server(limits);
    RawPeer first = server.connect();
    for (int i = 0; i < 100; ++i) CHECK(server.connect().is_closed());
    CHECK(server.server->statistics().connections == 1);
    CHECK(server.server->statistics().refused == 100);
    const auto lines = [&] { return std::ranges::count(log.text(), '\n'); };
    CHECK(lines() == LineLimit::kLines);
    server.now += LineLimit::kWindow;
    CHECK(server.connect().is_closed());
    CHECK(lines() == LineLimit::kLines + 2);
    CHECK(log.text().find("80 lines of this log were left out before this one (at most 20 in 10 s)") !=
          std::string::npos);
}

TEST_CASE("server: half received requests and unsent replies of all clients together are limited") {
    Limits limits;
    limits.buffer_bytes = 4u << 20;
    Server server(limits);
    RawPeer healthy = server.connect();
    std::vector<RawPeer> half;
    const std::string set = request(kSet, "/a", std::string(2u << 20, 'v'));
    for (int i = 0; i < 8; ++i) {
        half.push_back(server.connect());
        half.back().send(std::string_view(set).substr(0, set.size() - 1));
        server.settle();
    }
    const Statistics now = server.server->statistics();
    CHECK(now.buffer_bytes <= 4u << 20);
    CHECK(now.connections >= 2);
    CHECK(now.connections <= 4);
    healthy.send(request(kGetNumKeys));
    server.settle();
    CHECK(healthy.receive(8) == number(0));
    half.clear();
    server.settle();
    CHECK(server.server->statistics().buffer_bytes == 0);
}

TEST_CASE("server: the room that stored values have to grow is the store's, not the buffers'") {
    Limits limits;
    limits.buffer_bytes = 2u << 20;
    Server server(limits);
    RawPeer peer = server.connect();
    for (int i = 0; i < 40; ++i) {
        const std::string key = "/" + std::to_string(i);
        peer.send(request(kSet, key, std::string(100'000, 'v')) + request(kAppend, key, "+"));
        server.settle();
    }
    CHECK(server.server->statistics().buffer_bytes < 1000);
    peer.send(request(kSet, "/more", std::string(100'000, 'v')) + request(kGetNumKeys));
    server.settle();
    CHECK(peer.receive(8) == number(41));
}

TEST_CASE("server: idle connections need little memory, whatever they did before") {
    Server server;
    std::vector<RawPeer> peers;
    const auto held = [] {
        const auto info = ::mallinfo2();
        return info.uordblks + info.hblkhd;
    };
    peers.reserve(200);
    const std::size_t before = held();
    for (int i = 0; i < 200; ++i) {
        peers.push_back(server.connect());
        peers.back().send(request(kSet, "/v", std::string(100'000, 'v')) + request(kGet, "/v") +
                          request(kMultiGet, Keys(500, "/none")));
        server.settle();
        CHECK(peers.back().receive(100'008 + 500 * 8).size() == 100'008 + 500 * 8);
    }
    server.settle();
    CHECK(held() < before + 200 * 1024 + 300'000);
    CHECK(server.server->statistics().buffer_bytes < 200 * 512);
}

// A sanitizer needs address space of its own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("server: the pages of a deleted large value are given back a second later") {
    Server server;
    RawPeer peer = server.connect();
    const std::string set = request(kSet, "/large", std::string(5 << 20, 'v'));
    for (std::size_t at = 0; at < set.size(); at += 1 << 20) {
        peer.send(set.substr(at, 1 << 20));
        server.settle();
    }
    CHECK_FALSE(server.server->deadline().has_value());
    peer.send(request(kDeleteKey, "/large"));
    server.settle();
    CHECK(server.server->statistics().store_bytes == 0);
    CHECK(server.server->deadline() == server.now + 1s);
    server.pass(1s);
    CHECK_FALSE(server.server->deadline().has_value());
}

TEST_CASE("server: without memory for a value its connection is closed, and the others are served") {
    const CapturedLog log;
    Server server;
    RawPeer present = server.connect();
    RawPeer greedy = server.connect();
    rlimit before{};
    ::getrlimit(RLIMIT_AS, &before);
    {
        std::size_t pages = 0;
        std::unique_ptr<FILE, int (*)(FILE*)> statm(std::fopen("/proc/self/statm", "r"), &std::fclose);
        REQUIRE(std::fscanf(statm.get(), "%zu", &pages) == 1);
        const rlimit limit{pages * 4096 + (8u << 20), before.rlim_max};
        const std::string set = request(kSet, "/a", std::string(40u << 20, 'v'));
        std::size_t sent = 0;
        ::setrlimit(RLIMIT_AS, &limit);
        for (int i = 0; i < 10'000 && server.server->statistics().refused == 0; ++i) {
            sent += greedy.send_some(std::string_view(set).substr(sent));
            server.server->serve(0ns);
        }
        ::setrlimit(RLIMIT_AS, &before);
    }
    CHECK(greedy.is_closed());
    CHECK(log.text().find("out of memory") != std::string::npos);
    present.send(request(kGetNumKeys));
    server.settle();
    CHECK(present.receive(8) == number(0));
}

#endif

volatile std::sig_atomic_t signal_came = 0;

TEST_CASE("server: a signal is handled although a connection is always ready") {
    Server server;
    struct sigaction before {};
    struct sigaction note {};
    note.sa_handler = [](int) { signal_came = 1; };
    REQUIRE(::sigaction(SIGUSR1, &note, &before) == 0);
    signal_came = 0;

    // Two streams of requests without replies: more requests than the server has received are always under way.
    std::string sets;
    while (sets.size() < 4u << 20) sets += request(kSet, "/key", "v");
    std::atomic<int> sent = 0;
    std::atomic<bool> ended = false;
    std::vector<std::thread> floods;
    for (int i = 0; i < 2; ++i) {
        floods.emplace_back([&] {
            const UniqueFd socket = connect_socket(server.endpoint, soon()).value();
            (void)send_all(socket.get(), validate(), soon());
            while (!ended && send_all(socket.get(), sets, soon())) ++sent;
        });
    }
    std::atomic<bool> handled = false;
    bool in_time = false;
    std::thread signals([&, serving = ::pthread_self()] {
        while (sent < 6) std::this_thread::sleep_for(1ms);
        ::pthread_kill(serving, SIGUSR1);
        for (const TimePoint late = Clock::now() + 15s; !handled && Clock::now() < late;)
            std::this_thread::sleep_for(1ms);
        in_time = handled;
        ended = true;  // without the flood the signal is handled in any case
    });
    server.server->serve_until_signal([&] {
        handled = signal_came != 0;
        return !handled;
    });
    server.server->close();
    signals.join();
    for (std::thread& flood : floods) flood.join();
    ::sigaction(SIGUSR1, &before, nullptr);
    CHECK(in_time);
}

TEST_CASE("server: statistics count what was done and what is held") {
    Server server;
    RawPeer peer = server.connect();
    peer.send(request(kSet, "/a", "value") + request(kGet, "/a") + request(kWait, Keys{"/x"}));
    server.settle();
    const Statistics now = server.server->statistics();
    CHECK(now.connections == 1);
    CHECK(now.accepted == 1);
    CHECK(now.requests[static_cast<std::size_t>(kGet)] == 1);
    CHECK(now.request_count() == 3);
    CHECK(now.keys == 1);
    CHECK(now.store_bytes == 2 + 5 + kEntryBytes + 2 + kAwaitedNameBytes);
    CHECK(now.waiters == 1);
    CHECK(now.sent_bytes == 13);
}

}  // namespace
}  // namespace ddprun::store::test
