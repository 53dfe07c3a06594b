// TLS between two ends of a channel. The client dials 0.0.0.0, which leads to loopback without being a loopback
// address, so that it uses TLS. DDPRUN_TEST_HANDSHAKES sets how often each attack is tried.
#include <malloc.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/time.h>

#include <atomic>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <vector>

#include "common/job_key.hpp"
#include "rendezvous/transport/websocket.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/daemon/loop.hpp"

using namespace ddprun;
using namespace ddprun::test;
using transport::Channel;
using transport::Security;
namespace ssl = asio::ssl;

namespace {

/// Added to the time of day that OpenSSL sees.
std::atomic<std::time_t> clock_step{0};
std::time_t clock_step_of_test = 0;
std::atomic<int> looks_at_stepped_clock{0};

using Accepted = Result<std::shared_ptr<Channel>>;

int tries() {
    const char* const set = std::getenv("DDPRUN_TEST_HANDSHAKES");
    return set != nullptr ? std::atoi(set) : 20;
}

Security keyed(unsigned char byte) {
    JobKey::Bytes bytes{};
    bytes.fill(byte);
    return transport::make_security(JobKey(bytes, "/home/u/.ddprun/job-key"), false).value();
}

/// A server with a key, which accepts one connection after another and counts those that it takes for agents.
struct Server {
    explicit Server(asio::io_context& io, Security with = keyed(1)) : acceptor(listen_on_loopback(io)), security(with) {
        spawn(io, serve());
    }
    awaitable<void> serve() {
        while (true) {
            auto [ec, socket] = co_await acceptor.async_accept(kTuple);
            if (ec) co_return;
            Accepted result = co_await transport::accept_websocket(std::move(socket), in(deadline), {}, security);
            if (result) {
                ++accepted;
                channel = *result;
            } else {
                last_error = result.error();
                ++refused;
            }
        }
    }
    [[nodiscard]] tcp::endpoint not_loopback() const {
        return {asio::ip::address_v4::any(), acceptor.local_endpoint().port()};
    }
    awaitable<void> has_refused(int count) {
        const bool done = co_await eventually([&] { return refused >= count; });
        if (!done) throw std::runtime_error("the server has refused too few connections");
    }

    tcp::acceptor acceptor;
    Security security;
    Duration deadline = 5s;
    int accepted = 0;
    int refused = 0;
    Error last_error;
    std::shared_ptr<Channel> channel;
};

/// Forwards one connection to a server and records what each side sends.
struct Wire {
    Wire(asio::io_context& io, std::uint16_t to_port) : acceptor(listen_on_loopback(io)), to(to_port) {
        spawn(io, forward());
    }
    awaitable<void> forward() {
        using namespace asio::experimental::awaitable_operators;
        tcp::socket near = co_await acceptor.async_accept(asio::use_awaitable);
        tcp::socket far = co_await dial_plain(to);
        co_await (pass(near, far, from_client) && pass(far, near, from_server));
    }
    static awaitable<void> pass(tcp::socket& from, tcp::socket& to_socket, std::string& record) {
        std::array<char, 4096> bytes{};
        while (true) {
            const auto [ec, n] = co_await from.async_read_some(asio::buffer(bytes), kTuple);
            if (ec) break;
            record.append(bytes.data(), n);
            co_await asio::async_write(to_socket, asio::buffer(bytes, n), kTuple);
        }
        boost::system::error_code ignored;
        to_socket.shutdown(tcp::socket::shutdown_send, ignored);
    }
    [[nodiscard]] tcp::endpoint not_loopback() const {
        return {asio::ip::address_v4::any(), acceptor.local_endpoint().port()};
    }

    tcp::acceptor acceptor;
    std::uint16_t to;
    std::string from_client;
    std::string from_server;
};

using Test = awaitable<void> (*)(asio::io_context&);

void run_test(Test test) {
    asio::io_context io(1);
    REQUIRE(run(io, test(io), 600s));
}

/// Returns an address of this machine that other hosts can reach; nullopt: it has none.
std::optional<asio::ip::address> own_address(asio::io_context& io) {
    asio::ip::udp::socket socket(io);
    boost::system::error_code ec;
    socket.connect({asio::ip::make_address("192.0.2.1"), 9}, ec);  // sends nothing
    const auto local = ec ? asio::ip::udp::endpoint() : socket.local_endpoint(ec);
    if (ec || local.address().is_loopback()) return std::nullopt;
    return local.address();
}

/// Gives `context` a self-signed certificate.
void certify(ssl::context& context) {
    EVP_PKEY* const key = EVP_EC_gen("P-256");
    X509* const certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_sign(certificate, key, EVP_sha256());
    SSL_CTX_use_certificate(context.native_handle(), certificate);
    SSL_CTX_use_PrivateKey(context.native_handle(), key);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

unsigned client_psk(SSL*, const char*, char* identity, unsigned, unsigned char* key, unsigned) {
    std::strcpy(identity, "ddprun control 1, client to daemon");
    std::fill_n(key, JobKey::kBytes, static_cast<unsigned char>(1));
    return JobKey::kBytes;
}

}  // namespace

TEST_CASE("with one key messages pass both ways, and the wire shows none of them", "[tls][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        Server server(io);
        Wire wire(io, server.acceptor.local_endpoint().port());
        auto client = (co_await transport::connect_websocket(wire.not_loopback(), in(5s), keyed(1))).value();
        REQUIRE(co_await eventually([&] { return server.channel != nullptr; }));
        const std::string big(transport::kMaxMessageBytes, 'x');
        client->send("a question in clear");
        client->send(big);
        server.channel->send("an answer in clear");
        const auto question = co_await server.channel->receive();
        const auto second = co_await server.channel->receive();
        const auto answer = co_await client->receive();
        CHECK(question.value() == "a question in clear");
        CHECK((second.value() == big));
        CHECK(answer.value() == "an answer in clear");
        CHECK(client->local_address().to_string() == "127.0.0.1");
        co_await client->close();
        const auto end = co_await server.channel->receive();
        CHECK(end.error().code == Errc::kClosed);
        for (const std::string* bytes : {&wire.from_client, &wire.from_server}) {
            CHECK(bytes->starts_with('\x16'));
            // Each long enough that random bytes do not contain it.
            for (const std::string text : {"in clear", "Upgrade: ", "HTTP/1.1", "Ddprun-Channel", "\1\1\1\1\1\1\1\1"})
                CHECK((bytes->find(text) == std::string::npos));
        }
    });
}

/// Take the place of the C library's, for OpenSSL, too: it uses the first, and from 3.2 on the second.
extern "C" std::time_t time(std::time_t* result) noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const std::time_t seconds = now.tv_sec + clock_step;
    if (clock_step != 0) ++looks_at_stepped_clock;
    if (result != nullptr) *result = seconds;
    return seconds;
}
extern "C" int gettimeofday(timeval* result, void*) noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    if (clock_step != 0) ++looks_at_stepped_clock;
    *result = {now.tv_sec + clock_step, now.tv_nsec / 1000};
    return 0;
}

TEST_CASE("a key does not age: a daemon and an agent may run for a year, and the clock may be set", "[tls][unit]") {
    clock_step_of_test = GENERATE(366, -366) * std::time_t{86'400};
    run_test([](asio::io_context& io) -> awaitable<void> {
        Server server(io);
        const auto client = keyed(1);
        const auto first = co_await transport::connect_websocket(server.not_loopback(), in(5s), client);
        CHECK(first.has_value());
        clock_step = clock_step_of_test;
        auto later = co_await transport::connect_websocket(server.not_loopback(), in(5s), client);
        auto of_new_agent = co_await transport::connect_websocket(server.not_loopback(), in(5s), keyed(1));
        clock_step = 0;
        CHECK(looks_at_stepped_clock > 0);
        CHECK(later.has_value());
        CHECK(of_new_agent.has_value());
    });
}

TEST_CASE("an end that vanishes under TLS reads as closed, as without", "[tls][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        Server server(io);
        auto client = (co_await transport::connect_websocket(server.not_loopback(), in(5s), keyed(1))).value();
        REQUIRE(co_await eventually([&] { return server.channel != nullptr; }));
        client->abort();
        const auto end = co_await server.channel->receive();
        CHECK(end.error().code == Errc::kClosed);
    });
}

TEST_CASE("an idle connection under TLS keeps no buffers, whatever it did before", "[tls][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        constexpr std::size_t kConnections = 50;
        const Security key = keyed(1);
        Server server(io);
        std::vector<std::shared_ptr<Channel>> ends;
        const auto held = [] {
            const auto info = ::mallinfo2();
            return info.uordblks + info.hblkhd;
        };
        std::size_t before = 0;
        for (std::size_t i = 0; i <= kConnections; ++i) {
            ends.push_back((co_await transport::connect_websocket(server.not_loopback(), in(5s), key)).value());
            REQUIRE(co_await eventually([&] { return server.channel != nullptr; }));
            ends.push_back(std::exchange(server.channel, nullptr));
            ends[2 * i]->send(std::string(100'000, 'q'));
            ends[2 * i + 1]->send(std::string(100'000, 'a'));
            const auto question = co_await ends[2 * i + 1]->receive();
            const auto answer = co_await ends[2 * i]->receive();
            CHECK(question.value().size() == 100'000);
            CHECK(answer.value().size() == 100'000);
            if (i == 0) before = held();  // the first one has what OpenSSL keeps for all
        }
        INFO((held() - before) / kConnections / 2 << " bytes for each end");
        CHECK(held() - before < kConnections * 2 * (32u << 10));
    });
}

TEST_CASE("another key is refused by both ends, with where this node's key is from", "[tls][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        Server server(io);
        const Security other = keyed(2);
        const int count = tries();
        for (int i = 0; i < count; ++i) {
            const auto client = co_await transport::connect_websocket(server.not_loopback(), in(5s), other);
            REQUIRE_FALSE(client.has_value());
            REQUIRE(client.error().code == Errc::kUntrusted);
            if (i == 0)
                CHECK_THAT(client.error().message,
                           Catch::Contains("another job key") && Catch::Contains("/home/u/.ddprun/job-key: it is"));
        }
        co_await server.has_refused(count);
        CHECK_THAT(server.last_error.message, Catch::StartsWith("it has another job key; all nodes need the same"));
        CHECK(server.accepted == 0);
    });
}

TEST_CASE("an agent without TLS from another host is refused, and learns why", "[tls][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        const auto address = own_address(io);
        if (!address) {
            WARN("SKIPPED: this machine has no address but loopback");
            co_return;
        }
        Server server(io);
        server.acceptor = tcp::acceptor(io, tcp::endpoint(*address, 0));
        spawn(io, server.serve());
        const tcp::endpoint there = server.acceptor.local_endpoint();
        const int count = tries();
        for (int i = 0; i < count; ++i) {
            const auto client = co_await transport::connect_websocket(there, in(5s), Security{std::nullopt, true});
            REQUIRE_FALSE(client.has_value());
            REQUIRE(client.error().code == Errc::kUntrusted);
            CHECK_THAT(client.error().message, Catch::StartsWith("requires TLS") && Catch::Contains("--insecure"));
        }
        co_await server.has_refused(count);
        CHECK(server.last_error.code == Errc::kUntrusted);
        CHECK(server.accepted == 0);
        const auto keyless = co_await transport::connect_websocket(there, in(5s), Security{});
        CHECK(keyless.error().code == Errc::kUntrusted);
        CHECK_THAT(keyless.error().message, Catch::Contains("no job key"));
        const auto with_key = co_await transport::connect_websocket(there, in(5s), keyed(1));
        INFO((with_key ? "" : with_key.error().message));
        CHECK(with_key.has_value());
    });
}

TEST_CASE("a daemon without TLS answers a client that uses it, which learns why", "[tls][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        Server server(io, Security{std::nullopt, true});
        const auto client = co_await transport::connect_websocket(server.not_loopback(), in(5s), keyed(1));
        CHECK(client.error().code == Errc::kUntrusted);
        CHECK_THAT(client.error().message, Catch::StartsWith("uses no TLS"));
        co_await server.has_refused(1);
        CHECK(server.accepted == 0);
    });
}

TEST_CASE("TLS 1.2 is refused, even with a key", "[tls][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        Server server(io);
        ssl::context context(ssl::context::tlsv12_client);
        SSL_CTX_set_psk_client_callback(context.native_handle(), client_psk);
        SSL_CTX_set_cipher_list(context.native_handle(), "PSK-AES128-GCM-SHA256:DHE-PSK-AES128-GCM-SHA256");
        const int count = tries();
        for (int i = 0; i < count; ++i) {
            ssl::stream<tcp::socket> stream(co_await dial_plain(server.acceptor.local_endpoint().port()), context);
            const auto [ec] = co_await stream.async_handshake(ssl::stream_base::client, kTuple);
            REQUIRE(ec);
        }
        co_await server.has_refused(count);
        CHECK(server.last_error.code == Errc::kMalformed);
        CHECK(server.accepted == 0);
    });
}

TEST_CASE("a key under another name is refused", "[tls][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        Server server(io);
        ssl::context context(ssl::context::tlsv13_client);
        SSL_CTX_set_psk_client_callback(context.native_handle(),
                                        [](SSL*, const char*, char* identity, unsigned, unsigned char* key, unsigned) {
                                            std::strcpy(identity, "ddprun control 1, daemon to client");
                                            std::fill_n(key, JobKey::kBytes, static_cast<unsigned char>(1));
                                            return static_cast<unsigned>(JobKey::kBytes);
                                        });
        ssl::stream<tcp::socket> stream(co_await dial_plain(server.acceptor.local_endpoint().port()), context);
        const auto [ec] = co_await stream.async_handshake(ssl::stream_base::client, kTuple);
        CHECK(ec);
        co_await server.has_refused(1);
        CHECK(server.accepted == 0);
    });
}

TEST_CASE("a client whose own messages come back to it refuses them", "[tls][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        tcp::acceptor mirror = listen_on_loopback(io);
        const int count = tries();
        const auto reflect = [&]() -> awaitable<void> {
            for (int i = 0; i < count; ++i) {
                tcp::socket socket = co_await mirror.async_accept(asio::use_awaitable);
                std::string ignored;
                co_await Wire::pass(socket, socket, ignored);
            }
        };
        spawn(io, reflect());
        const tcp::endpoint there(asio::ip::address_v4::any(), mirror.local_endpoint().port());
        for (int i = 0; i < count; ++i) {
            const auto client = co_await transport::connect_websocket(there, in(5s), keyed(1));
            REQUIRE_FALSE(client.has_value());
        }
    });
}

TEST_CASE("a recorded connection is refused when it is played again", "[tls][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        Server server(io);
        std::string recorded;
        {
            Wire wire(io, server.acceptor.local_endpoint().port());
            auto client = (co_await transport::connect_websocket(wire.not_loopback(), in(5s), keyed(1))).value();
            client->send("join");
            REQUIRE(co_await eventually([&] { return server.channel != nullptr; }));
            const auto join = co_await server.channel->receive();
            CHECK(join.value() == "join");
            co_await client->close();
            recorded = wire.from_client;
            REQUIRE(co_await eventually([&] { return wire.acceptor.is_open(); }));
            co_await pause(50ms);  // the wire's coroutine ends
        }
        const int count = tries();
        // All at once, then the first message alone with the rest after the server's answer.
        for (int i = 0; i < count; ++i) {
            tcp::socket socket = co_await dial_plain(server.acceptor.local_endpoint().port());
            const std::size_t first = 5 + 256u * static_cast<unsigned char>(recorded[3]) +
                                      static_cast<unsigned char>(recorded[4]);  // the record with the ClientHello
            co_await asio::async_write(socket, asio::buffer(recorded.substr(0, first)), kTuple);
            if (i % 2 == 0) {
                std::array<char, 1> answer{};
                co_await asio::async_read(socket, asio::buffer(answer), kTuple);
            }
            co_await asio::async_write(socket, asio::buffer(recorded.substr(first)), kTuple);
            co_await read_all(socket);
        }
        co_await server.has_refused(count);
        CHECK(server.accepted == 1);  // the recorded one
    });
}

TEST_CASE("a server with a certificate and no key is refused", "[tls][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        tcp::acceptor acceptor = listen_on_loopback(io);
        ssl::context context(ssl::context::tlsv13_server);
        certify(context);
        const auto serve = [&]() -> awaitable<void> {
            ssl::stream<tcp::socket> stream(co_await acceptor.async_accept(asio::use_awaitable), context);
            const auto [ec] = co_await stream.async_handshake(ssl::stream_base::server, kTuple);
            CHECK(ec);
        };
        spawn(io, serve());
        const tcp::endpoint there(asio::ip::address_v4::any(), acceptor.local_endpoint().port());
        const auto client = co_await transport::connect_websocket(there, in(5s), keyed(1));
        CHECK(client.error().code == Errc::kRefused);
        co_await pause(50ms);
    });
}

TEST_CASE("gibberish in the place of TLS is closed at once, and silence at the deadline", "[tls][unit]") {
    run_test([](asio::io_context& io) -> awaitable<void> {
        Server server(io);
        for (const std::string& bytes : {std::string("\x16\x03\x01\x02", 4), std::string("\x16 nonsense"),
                                         std::string("\x16\x03\x01\xff\xff", 5) + std::string(70'000, 'x'),
                                         std::string("\x16\x03\x01\0\x05\x01\0\0\x01x", 10)}) {
            server.deadline = 300ms;
            tcp::socket socket = co_await dial_plain(server.acceptor.local_endpoint().port());
            co_await asio::async_write(socket, asio::buffer(bytes), kTuple);
            const std::string answer = co_await read_all(socket);
            CHECK((answer.empty() || answer.front() == '\x15'));  // an alert of TLS
        }
        co_await server.has_refused(4);
        tcp::socket socket = co_await dial_plain(server.acceptor.local_endpoint().port());
        co_await asio::async_write(socket, asio::buffer(std::string("\x16\x03\x01\x01\0", 5)), kTuple);
        const TimePoint start = Clock::now();
        co_await read_all(socket);
        CHECK(Clock::now() - start > 200ms);
        co_await server.has_refused(5);
        CHECK(server.last_error.code == Errc::kTimeout);
        CHECK(server.accepted == 0);
    });
}
