// The server over real sockets, with clients that send raw bytes.
#include "rendezvous/store/server/server.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/store/client/socket.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/store/codec/vectors.hpp"
#include "tests/unit/rendezvous/store/rig.hpp"
#include "tests/unit/rendezvous/store/server/captured_log.hpp"
#include "tests/unit/rendezvous/store/server/server_thread.hpp"

namespace ddprun::store::test {
namespace {

using enum RequestKind;

const std::string kPong = hex("78110000");
/// VALIDATE and PING: the answer proves that the server has served all that was sent before it in the same segment.
const std::string kGreeting = validate() + hex("0d78110000");

/// A raw modern client, greeted.
struct Modern : RawPeer {
    explicit Modern(const Endpoint& endpoint) : RawPeer(endpoint) { REQUIRE(ask(kGreeting, 4) == kPong); }
};

Result<std::unique_ptr<StoreServer>> try_to_listen(const std::string& address, std::uint16_t port) {
    boost::asio::io_context io;
    auto server = StoreServer::listen(io.get_executor(), boost::asio::ip::make_address(address), port);
    if (server) server->reset();  // before its io_context is destroyed
    return server;
}

TEST_CASE("socket: every modern vector, then every old one, over one server") {
    ServerThread modern_server;
    RawPeer modern(modern_server.endpoint());
    for (const Vector& vector : kModernVectors) {
        INFO(vector.what);
        const std::string reply = hex(vector.reply);
        CHECK(modern.ask(hex(vector.request), reply.size()) == reply);
    }
    ServerThread old_server;  // the vectors begin with an empty store
    RawPeer old(old_server.endpoint());
    for (const Vector& vector : kOldVectors) {
        INFO(vector.what);
        const std::string reply = hex(vector.reply);
        CHECK(old.ask(hex(vector.request), reply.size()) == reply);
    }
}

TEST_CASE("socket: both dialects share one store, and WATCH_KEY ends only its own connection") {
    ServerThread server;
    Modern modern(server.endpoint());
    RawPeer old(server.endpoint());
    CHECK(old.ask(request(3, "init/", std::int64_t{1}), 8) == number(1));
    CHECK(modern.ask(request(kGet, "init/"), 9) == bytes("1"));
    old.send(request(7, "/w"));
    CHECK(old.is_closed());
    CHECK(modern.ask(request(kGetNumKeys), 8) == number(1));
}

TEST_CASE("socket: R1, a half sent request does not delay other clients") {
    ServerThread server;
    Modern slow(server.endpoint());
    const std::string whole = request(kSet, std::string(100, 'k'), "v");
    slow.send(whole.substr(0, 13));
    Modern other(server.endpoint());
    CHECK(other.ask(request(kGetNumKeys), 8) == number(0));
    slow.send(whole.substr(13));
    CHECK(slow.ask(request(kGetNumKeys), 8) == number(1));
}

TEST_CASE("socket: R2, a reply arrives in one piece") {
    ServerThread server;
    Modern peer(server.endpoint());
    peer.send(request(kSet, "/a", "hello") + request(kGet, "/a"));
    CHECK(peer.receive_once() == bytes("hello"));
}

TEST_CASE("socket: R6, R13, a silent connection stays open and can send later") {
    ServerThread server;
    RawPeer silent(server.endpoint());
    for (int i = 0; i < 100; ++i) Modern(server.endpoint()).send(request(kSet, "/" + std::to_string(i), "v"));
    CHECK(silent.is_silent());
    Modern last(server.endpoint());
    CHECK(last.ask(request(kWait, Keys{"/99"}), 1) == kStop);
    CHECK(silent.ask(request(3, "init/", std::int64_t{1}), 8) == number(1));
}

TEST_CASE("socket: one SET releases 64 connections that wait for its key") {
    ServerThread server;
    std::vector<RawPeer> waiting;
    for (int i = 0; i < 64; ++i) {
        RawPeer& peer = waiting.emplace_back(server.endpoint());
        // One segment: once the PING is answered, the WAIT behind it is registered too.
        CHECK(peer.ask(kGreeting + request(kWait, Keys{"/go"}), 4) == kPong);
    }
    for (RawPeer& peer : waiting) CHECK(peer.is_silent());
    Modern other(server.endpoint());
    other.send(request(kSet, "/go", "1"));
    for (RawPeer& peer : waiting) CHECK(peer.receive(1) == kStop);
}

TEST_CASE("socket: bad input ends its own connection and no other") {
    ServerThread server;
    Modern other(server.endpoint());
    std::string huge = validate() + request(kGet);
    wire::append_number(huge, std::uint64_t{1} << 62);
    for (const std::string& bad :
         {std::string("GET / HTTP/1.1\r\n\r\n"), validate() + validate(), validate() + "\x13", huge,
          validate() + request(kSet, "/x", "abc") + request(kAdd, "/x", std::int64_t{1})}) {
        RawPeer peer(server.endpoint());
        peer.send(bad);
        CHECK(peer.is_closed());
    }
    CHECK(other.ask(request(kGet, "/x"), 11) == bytes("abc"));
}

TEST_CASE("socket: a client that receives no replies is not read from, others are served") {
    ServerThread server;
    Modern greedy(server.endpoint());
    greedy.send(request(kSet, "/big", std::string(1 << 20, 'v')));
    std::string many;
    for (int i = 0; i < 4096; ++i) many += request(kGet, "/big");
    // 64 MiB of requests would be over 4 TB of replies.
    CHECK(greedy.stops_receiving(many, (64u << 20) / many.size(), std::chrono::milliseconds(300)));
    Modern other(server.endpoint());
    CHECK(other.ask(request(kGetNumKeys), 8) == number(1));
}

TEST_CASE("socket: requests that arrive while a timer is handled are all served") {
    boost::asio::io_context io;
    Options options;
    options.limits.output_bytes = 1000;  // few replies in a slice
    options.limits.stalled_request_seconds = 1;
    const auto server =
        StoreServer::listen(io.get_executor(), boost::asio::ip::make_address("127.0.0.1"), 0, options).value();
    const Endpoint endpoint{"127.0.0.1", server->port()};
    RawPeer half(endpoint);
    half.send(validate() + request(kSet, "/a", "value").substr(0, 7));  // the server sets a timer for it
    RawPeer busy(endpoint);
    busy.send(kGreeting + request(kSet, "/v", std::string(300, 'v')));
    const TimePoint late = soon();
    while (busy.is_silent() && Clock::now() < late) io.poll();
    CHECK(busy.receive(4) == kPong);

    // This one is due before the server's: they are handled one after the other, and nothing is looked at in between.
    constexpr std::size_t kGets = 1000;
    boost::asio::steady_timer first(io, Clock::now());
    first.async_wait([&](const boost::system::error_code&) {
        std::string gets;
        for (std::size_t i = 0; i < kGets; ++i) gets += request(kGet, "/v");
        busy.send(gets);
    });
    std::this_thread::sleep_until(Clock::now() + std::chrono::milliseconds(130));
    std::size_t received = 0;
    while (received < kGets * 308 && Clock::now() < late) {
        io.poll();
        received += busy.receive_now().size();
    }
    CHECK(received == kGets * 308);
}

TEST_CASE("socket: the end of a wait is sent after the replies that the kernel did not take yet") {
    ServerThread server;
    Modern slow(server.endpoint());
    const std::string value(std::size_t{100} << 10, 'v');
    slow.send(request(kSet, "/v", value));
    std::string many;
    for (int i = 0; i < 200; ++i) many += request(kGet, "/v");
    slow.send(many + request(kWait, Keys{"/x"}));
    Modern other(server.endpoint());
    other.send(request(kSet, "/x", "1"));
    CHECK(other.ask(request(kWait, Keys{"/x"}), 1) == kStop);
    for (int i = 0; i < 200; ++i) REQUIRE(slow.receive(8 + value.size()) == bytes(value));
    CHECK(slow.receive(1) == kStop);
}

TEST_CASE("socket: closing the server ends every connection, waiting, idle or half way through a request") {
    ServerThread server;
    Modern waiting(server.endpoint());
    waiting.send(request(kWait, Keys{"/never"}));
    Modern half(server.endpoint());
    half.send(request(kSet, "/a", "value").substr(0, 7));
    RawPeer idle(server.endpoint());
    server.close();
    CHECK(waiting.is_closed());
    CHECK(half.is_closed());
    CHECK(idle.is_closed());
}

TEST_CASE("socket: R11, the port of a store that had connections can be used again at once") {
    std::uint16_t port = 0;
    {
        ServerThread first;
        port = first.endpoint().port;
        Modern peer(first.endpoint());
        first.close();
        CHECK(peer.is_closed());  // the server closed first: its side stays in TIME_WAIT
    }
    ServerThread second("127.0.0.1", port);
    Modern peer(second.endpoint());
}

TEST_CASE("socket: R18, the server listens on the given address and no other") {
    ServerThread server("127.0.0.1");
    const auto elsewhere = connect_socket(Endpoint{"127.0.0.2", server.endpoint().port}, soon());
    REQUIRE_FALSE(elsewhere.has_value());
    CHECK(elsewhere.error().code == Errc::kUnreachable);
}

TEST_CASE("socket: IPv6, and :: takes IPv4 as well") {
    if (const auto usable = try_to_listen("::1", 0); !usable) {
        WARN("SKIPPED: " << usable.error().message);
        return;
    }
    ServerThread loopback("::1");
    Modern peer(loopback.endpoint());
    ServerThread any("::");
    Modern other(Endpoint{"::1", any.endpoint().port});
    Modern mapped(Endpoint{"127.0.0.1", any.endpoint().port});
}

TEST_CASE("socket: an address that cannot be listened on is an error that names it") {
    ServerThread server;
    const auto taken = try_to_listen("127.0.0.1", server.endpoint().port);
    REQUIRE_FALSE(taken.has_value());
    CHECK(taken.error().code == Errc::kInUse);
    CHECK_THAT(taken.error().message,
               Catch::Contains("cannot listen on " + to_string(server.endpoint()) + ": the port is held by pid " +
                               std::to_string(::getpid()) + " ("));
    const auto foreign = try_to_listen("192.0.2.1", 0);
    REQUIRE_FALSE(foreign.has_value());
    CHECK(foreign.error().code == Errc::kSystem);
    CHECK_THAT(foreign.error().message, Catch::Contains("cannot listen on 192.0.2.1:0"));
}

/// While it lives this process can open one descriptor more.
class OneMoreDescriptor {
public:
    OneMoreDescriptor() {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        const UniqueFd lowest_free(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        const rlimit one_more{static_cast<rlim_t>(lowest_free.get()) + 1, before_.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &one_more);
    }
    ~OneMoreDescriptor() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    OneMoreDescriptor(const OneMoreDescriptor&) = delete;
    OneMoreDescriptor& operator=(const OneMoreDescriptor&) = delete;

private:
    rlimit before_{};
};

TEST_CASE("socket: without a free descriptor a new connection waits for one, the others are still served") {
    const CapturedLog log;
    ServerThread server;
    Modern present(server.endpoint());
    std::unique_ptr<RawPeer> newcomer;
    {
        const OneMoreDescriptor limit;
        newcomer = std::make_unique<RawPeer>(server.endpoint());  // takes it, so that the server finds none
        newcomer->send(kGreeting);
        CHECK(log.comes_to_say("cannot accept a connection: Too many open files"));
        CHECK(present.ask(request(kGetNumKeys), 8) == number(0));
        CHECK(newcomer->is_silent());
    }
    CHECK(newcomer->receive(4) == kPong);
    CHECK(log.comes_to_say("accepts connections again"));
}

TEST_CASE("socket: a refused connection is logged with its address and the reason") {
    const CapturedLog log;
    ServerThread server;
    RawPeer peer(server.endpoint());
    peer.send("GET / HTTP/1.1\r\n\r\n");
    CHECK(peer.is_closed());
    CHECK(log.comes_to_say("store " + to_string(server.endpoint()) + ": closed the connection from 127.0.0.1:"));
    CHECK(log.comes_to_say("request code 71 is not served"));
}

}  // namespace
}  // namespace ddprun::store::test
