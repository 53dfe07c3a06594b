// Connections that are not agents: bytes of other protocols, HTTP, silence. Each is closed, in time, with a reason.
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

#include <optional>

#include "common/daemon_answer.hpp"
#include "rendezvous/transport/websocket.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/daemon/loop.hpp"

using namespace ddprun;
using namespace ddprun::test;
using transport::Channel;

namespace {

constexpr Duration kLongTimeout = 10s;  // for connections that must be closed at once

const std::string kUpgrade =
    "Host: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

struct Visit {
    std::string answer;  ///< the bytes that arrived before the end of the connection
    Error error;         ///< the server's error
    Duration took{};
};

std::string line_of_ending_job() { return std::string(kJobIsEnding); }

/// Sends `bytes` to a server that expects an agent. Throws when the server accepts them.
Visit visit(const std::string& bytes, Duration patience = kLongTimeout) {
    asio::io_context io(1);
    tcp::acceptor acceptor = listen_on_loopback(io);
    std::optional<Result<std::shared_ptr<Channel>>> accepted;
    const auto serve = [&]() -> awaitable<void> {
        tcp::socket socket = co_await acceptor.async_accept(asio::use_awaitable);
        accepted = co_await transport::accept_websocket(std::move(socket), in(patience), line_of_ending_job);
    };
    Visit result;
    const auto knock = [&]() -> awaitable<void> {
        const TimePoint start = Clock::now();
        tcp::socket socket = co_await dial_plain(acceptor.local_endpoint().port());
        co_await asio::async_write(socket, asio::buffer(bytes), kTuple);
        result.answer = co_await read_all(socket);
        result.took = Clock::now() - start;
    };
    spawn(io, serve());
    if (!run(io, knock()) || !accepted) throw std::runtime_error("the stranger was not closed");
    if (accepted->has_value()) throw std::runtime_error("the stranger was let in");
    result.error = accepted->error();
    return result;
}

std::string get(const std::string& path, const std::string& headers) {
    return "GET " + path + " HTTP/1.1\r\n" + headers + "\r\n";
}

const std::string kPath(transport::kAgentPath);
const std::string kVersion = fmt::format("{}: {}\r\n", transport::kChannelHeader, transport::kChannelVersion);

}  // namespace

TEST_CASE("bytes of another protocol are closed at once and without an answer", "[channel][unit]") {
    const auto bytes =
        GENERATE(as<std::string>{}, std::string("SSH-2.0-OpenSSH_9.2\r\n"), std::string("\0\x01\x02", 3),
                 std::string("Gibberish\r\n\r\n"), std::string(64u << 10, 'G'), std::string("\x01\x3c\x85\x66\x7a", 5));
    const Visit visited = visit(bytes);
    INFO(visited.error.message);
    CHECK(visited.error.code == Errc::kMalformed);
    CHECK(visited.answer.empty());
    CHECK(visited.took < kLongTimeout / 2);
}

TEST_CASE("a plain HTTP request gets an answer that says what this is, and is closed", "[channel][unit]") {
    const auto request = GENERATE(as<std::string>{}, get("/", "Host: x\r\n"), get("/ddprun/v1/agent", "Host: x\r\n"));
    const Visit visited = visit(request);
    CHECK(visited.error.code == Errc::kRefused);
    CHECK_THAT(visited.answer, Catch::StartsWith("HTTP/1.1 426") &&
                                   Catch::EndsWith("\r\n\r\nThis is ddprund, the rendezvous daemon of ddprun. Only its "
                                                   "agents are served here.\nIts job is ending.\n"));
    CHECK(kJobIsComplete == "Its job has all its nodes.\n");  // ddprun of other versions reads these texts
    CHECK(visited.took < kLongTimeout / 2);
}

TEST_CASE("a WebSocket that is not an agent's is refused", "[channel][unit]") {
    const auto request = GENERATE(as<std::string>{}, get(kPath, kUpgrade), get("/other", kUpgrade + kVersion),
                                  get(kPath, kUpgrade + "Ddprun-Channel: 1\r\n"),
                                  get(kPath, kUpgrade + kVersion + "Origin: http://example.org\r\n"));
    const Visit visited = visit(request);
    INFO(request);
    CHECK(visited.error.code == Errc::kRefused);
    CHECK_THAT(visited.answer, Catch::StartsWith("HTTP/1.1 426"));
}

TEST_CASE("more header than any agent sends is refused", "[channel][unit]") {
    const Visit visited =
        visit(get(kPath, kUpgrade + "X-Filler: " + std::string(transport::kMaxHandshakeBytes, 'x') + "\r\n"));
    CHECK(visited.error.code == Errc::kMalformed);
}

TEST_CASE("a silent or incomplete connection is closed at the deadline", "[channel][unit]") {
    const auto bytes =
        GENERATE(as<std::string>{}, std::string(), std::string("G"), std::string("GET /ddprun/v1/agent HTTP/1.1\r\n"));
    const Duration deadline = 300ms;
    const Visit visited = visit(bytes, deadline);
    CHECK(visited.error.code == Errc::kTimeout);
    CHECK(visited.answer.empty());
    CHECK(visited.took >= deadline - 50ms);
    CHECK(visited.took < deadline + 3s);
}

TEST_CASE("bad frames after a good upgrade end the channel, even when the peer stays", "[channel][unit]") {
    asio::io_context io(1);
    tcp::acceptor acceptor = listen_on_loopback(io);
    std::optional<Result<std::string>> received;
    const auto serve = [&]() -> awaitable<void> {
        tcp::socket socket = co_await acceptor.async_accept(asio::use_awaitable);
        const auto channel = (co_await transport::accept_websocket(std::move(socket), in(5s))).value();
        received = co_await channel->receive();
    };
    spawn(io, serve());
    // Reserved bits, an unmasked frame, a binary message, a text that is not UTF-8, a message longer than allowed.
    const auto frame =
        GENERATE(as<std::string>{}, std::string("\xf1\x81\0\0\0\0x", 7), std::string("\x81\x01x", 3),
                 std::string("\x82\x81\0\0\0\0x", 7), std::string("\x81\x81\0\0\0\0\xff", 7),
                 std::string("\x81\xff\0\0\0\0\x7f\xff\xff\xff\0\0\0\0", 14) + std::string(9u << 20, 'x'));
    const auto speak = [&]() -> awaitable<void> {
        tcp::socket socket = co_await dial_plain(acceptor.local_endpoint().port());
        const std::string request = get(kPath, kUpgrade + kVersion);
        co_await asio::async_write(socket, asio::buffer(request), asio::use_awaitable);
        std::string answer;
        co_await asio::async_read_until(socket, asio::dynamic_buffer(answer), "\r\n\r\n", asio::use_awaitable);
        co_await asio::async_write(socket, asio::buffer(frame),
                                   kTuple);  // may be cut short: the server has closed
        co_await eventually([&] { return received.has_value(); }, 3s);
    };
    REQUIRE(run(io, speak()));
    REQUIRE(received.has_value());
    REQUIRE_FALSE(received->has_value());
    INFO(received->error().message);
    const auto code = received->error().code;
    CHECK((code == Errc::kMalformed || code == Errc::kLimit));
}
