// The agent's side of the control connection: waiting for a daemon, and recognising other servers.
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <climits>
#include <optional>
#include <sstream>

#include "rendezvous/client/control_client.hpp"
#include "rendezvous/client/dial.hpp"
#include "rendezvous/protocol/json.hpp"
#include "rendezvous/store/server/server.hpp"
#include "rendezvous/transport/websocket.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/daemon/loop.hpp"

using namespace ddprun;
using namespace ddprun::test;
using client::ControlClient;

namespace {

/// The last try is after 0.75 s then: a pause of the machine of some tenths of a second does not turn its answer into a
/// timeout.
constexpr Duration kPatience = 1500ms;

Endpoint endpoint_of(const tcp::acceptor& acceptor, std::string host = "127.0.0.1") {
    return {std::move(host), acceptor.local_endpoint().port()};
}

/// Bound and not listening: connections to its port are refused until listen().
tcp::acceptor reserve_port(asio::io_context& io) {
    tcp::acceptor acceptor(io, tcp::v4());
    acceptor.bind(tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    return acceptor;
}

/// A daemon for one agent: welcomes it, then sends back `text` if there is one, and keeps the messages that it
/// receives.
struct FakeDaemon {
    std::optional<std::string> text;
    std::shared_ptr<transport::Channel> channel;
    std::string heard;

    awaitable<void> serve(tcp::acceptor& acceptor) {
        tcp::socket socket = co_await acceptor.async_accept(asio::use_awaitable);
        channel = (co_await transport::accept_websocket(std::move(socket), in(5s))).value();
        const auto received = co_await channel->receive();
        heard = received ? *received : received.error().message;
        channel->send(text ? *text : protocol::encode(protocol::Welcome{"run", 1s, 3s}));
    }
};

/// Which clients a server does not answer: all but the first so many.
struct Stay {
    int after_visits = 0;
};
constexpr Stay kNever{INT_MAX};

/// Sends `answer` to each client, after its request, and then ends the connection or keeps it.
awaitable<void> answer_with(tcp::acceptor& acceptor, std::string answer, Stay stay) {
    std::vector<tcp::socket> staying;
    for (int visits = 0;; ++visits) {
        auto [ec, socket] = co_await acceptor.async_accept(kTuple);
        if (ec) co_return;
        std::string request;
        co_await asio::async_read_until(socket, asio::dynamic_buffer(request), "\r\n\r\n", kTuple);
        co_await asio::async_write(socket, asio::buffer(answer), kTuple);
        if (visits >= stay.after_visits) staying.push_back(std::move(socket));
    }
}

/// Returns the error of an agent that gets `answer`.
Error error_of(const std::string& answer, Stay stay, Duration timeout = 400ms) {
    asio::io_context io(1);
    tcp::acceptor acceptor = listen_on_loopback(io);
    spawn(io, answer_with(acceptor, answer, stay));
    std::optional<Error> error;
    const auto test = [&]() -> awaitable<void> {
        const auto client = co_await ControlClient::connect(endpoint_of(acceptor), in(timeout));
        if (!client) error = client.error();
    };
    if (!run(io, test()) || !error) throw std::runtime_error("connected to something that is not ddprund");
    return *error;
}

}  // namespace

TEST_CASE("a client waits for a daemon that is not there yet", "[client][unit]") {
    asio::io_context io(1);
    tcp::acceptor acceptor = reserve_port(io);
    FakeDaemon daemon;
    const auto start_late = [&]() -> awaitable<void> {
        co_await pause(200ms);
        acceptor.listen();
        co_await daemon.serve(acceptor);
    };
    spawn(io, start_late());
    const auto test = [&]() -> awaitable<void> {
        auto client = co_await ControlClient::connect(endpoint_of(acceptor), in(10s));
        REQUIRE(client.has_value());
        const protocol::AgentMessage heartbeat = protocol::Heartbeat{};
        (*client)->send(heartbeat);
        const auto welcome = co_await (*client)->receive();
        REQUIRE(welcome.has_value());
        CHECK(std::get<protocol::Welcome>(*welcome).run_id == "run");
        CHECK(daemon.heard == protocol::encode(heartbeat));
        CHECK((*client)->local_address() == "127.0.0.1");
        co_await (*client)->close();
        const auto end = co_await daemon.channel->receive();
        CHECK(end.error().code == Errc::kClosed);
    };
    REQUIRE(run(io, test()));
}

TEST_CASE("the error of a client that finds no daemon says where, why, how often and what to do", "[client][unit]") {
    asio::io_context io(1);
    const tcp::acceptor acceptor = reserve_port(io);
    const auto test = [&]() -> awaitable<void> {
        const TimePoint start = Clock::now();
        const auto client = co_await ControlClient::connect(endpoint_of(acceptor), in(kPatience));
        REQUIRE_FALSE(client.has_value());
        CHECK(client.error().code == Errc::kUnreachable);
        CHECK_THAT(
            client.error().message,
            Catch::Contains("rendezvous daemon at " + to_string(endpoint_of(acceptor)) + ": connection refused, ") &&
                Catch::Contains(" tries in ") && Catch::Contains("Is ddprund or the first ddprun running there?") &&
                Catch::Contains("--rdzv-endpoint"));
        CHECK(Clock::now() - start < 10s);
    };
    REQUIRE(run(io, test()));
}

TEST_CASE("a client whose endpoint is an unknown name tries again, and reports that the name is unknown",
          "[client][unit]") {
    asio::io_context io(1);
    const auto test = [&]() -> awaitable<void> {
        const Endpoint endpoint{"nosuch.invalid", 29400};
        const auto client = co_await ControlClient::connect(endpoint, in(kPatience));
        REQUIRE_FALSE(client.has_value());
        CHECK(client.error().code == Errc::kUnreachable);
        CHECK_THAT(client.error().message,
                   Catch::Contains("host 'nosuch.invalid' is unknown (") && Catch::Contains(" in ") &&
                       Catch::EndsWith("Correct the name, or let this host resolve it: `getent hosts nosuch.invalid` "
                                       "shows whether it does."));
    };
    REQUIRE(run(io, test()));
}

TEST_CASE("the remedy for a daemon that is not reached depends on the answer", "[client][unit]") {
    namespace errc = boost::system::errc;
    const Endpoint endpoint{"n1", 29400};
    const auto of = [&](boost::system::error_code code) { return client::remedy(endpoint, {code, "why"}); };
    const std::string start = "Is ddprund or the first ddprun running there? Start it, or pass another --rdzv-endpoint";
    CHECK(of(make_error_code(errc::connection_refused)) == start);
    CHECK(of(Errc::kClosed) == start);
    CHECK(of(Errc::kTimeout) ==
          "n1 is down or cut off, a firewall drops the connection, or the process there is stopped: find out which, or "
          "pass another --rdzv-endpoint");
    for (const auto code : {errc::host_unreachable, errc::network_unreachable}) {
        CHECK(of(make_error_code(code)) ==
              "n1 is down, or the network to it is interrupted: find out which, or pass another --rdzv-endpoint");
    }
    CHECK(of(Errc::kNotFound) ==
          "Correct the name, or let this host resolve it: `getent hosts n1` shows whether it does");
}

TEST_CASE("a wait for a daemon whose name is unknown is reported with the remedy", "[client][unit]") {
    std::ostringstream printed;
    const auto logger = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(printed)));
    const auto connect = []() -> awaitable<void> {
        const Endpoint endpoint{"nosuch.invalid", 29400};
        static_cast<void>(co_await ControlClient::connect(endpoint, in(55s)));
    };
    asio::io_context io(1);
    spawn(io, connect());
    const auto is_printed = [&] { return printed.str().ends_with('\n'); };
    const auto test = [&]() -> awaitable<void> { co_await eventually(is_printed, 20s); };
    const bool ended = run(io, test(), 30s);
    spdlog::set_default_logger(logger);
    REQUIRE(ended);
    const std::string line = printed.str();
    CHECK_THAT(line, Catch::Contains("waiting for the rendezvous daemon at nosuch.invalid:29400: host ") &&
                         Catch::Contains(" s. Correct the name, or let this host resolve it: "
                                         "`getent hosts nosuch.invalid` shows whether it does\n"));
    const std::string text = "; giving up in ";
    const auto at = line.find(text);
    REQUIRE(at != std::string::npos);
    const int left = std::stoi(line.substr(at + text.size()));
    CHECK(left > 0);
    CHECK(left < 55);
}

TEST_CASE("a refused connection to a daemon that ran is its end", "[client][unit]") {
    asio::io_context io(1);
    const tcp::acceptor acceptor = reserve_port(io);
    const auto test = [&]() -> awaitable<void> {
        const client::Pace pace{.refused_until = TimePoint::min()};
        const auto client = co_await ControlClient::connect(endpoint_of(acceptor), in(60s), pace);
        REQUIRE_FALSE(client.has_value());
        CHECK(client.error().code == Errc::kClosed);
        CHECK_THAT(client.error().message, Catch::Contains(", 1 try in "));
    };
    REQUIRE(run(io, test()));
}

TEST_CASE("a client tries at least once, however late it is", "[client][unit]") {
    asio::io_context io(1);
    tcp::acceptor acceptor = reserve_port(io);
    const auto test = [&]() -> awaitable<void> {
        const auto client = co_await ControlClient::connect(endpoint_of(acceptor), in(-1s));
        REQUIRE_FALSE(client.has_value());
        CHECK_THAT(client.error().message, Catch::Contains(", 1 try in "));
    };
    REQUIRE(run(io, test()));
}

TEST_CASE("a name with several addresses is tried at each of them", "[client][unit]") {
    asio::io_context io(1);
    tcp::acceptor acceptor = listen_on_loopback(io);  // localhost may mean ::1 first, where nothing listens
    FakeDaemon daemon;
    spawn(io, daemon.serve(acceptor));
    const auto test = [&]() -> awaitable<void> {
        const auto client = co_await ControlClient::connect(endpoint_of(acceptor, "localhost"), in(10s));
        CHECK(client.has_value());
    };
    REQUIRE(run(io, test()));
}

TEST_CASE("an answer that is not ddprund's is an error at once", "[client][unit]") {
    const auto answer =
        GENERATE(as<std::string>{}, "SSH-2.0-OpenSSH_9.2p1\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
                 "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
                 "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "
                 "Upgrade\r\nSec-WebSocket-Accept: wrong\r\n\r\n");
    const Error error = error_of(answer, {}, 10s);
    INFO(error.message);
    CHECK(error.code == Errc::kRefused);
    CHECK_THAT(error.message, Catch::StartsWith("the server at 127.0.0.1:") &&
                                  Catch::Contains(" does not answer as the ddprund of this job (") &&
                                  Catch::Contains("Most likely another program has that port; else it is a ddprund of "
                                                  "another version, with another job key"));
}

TEST_CASE("a ddprund of another version is distinguished from other servers", "[client][unit]") {
    const Error error =
        error_of("HTTP/1.1 426 Upgrade Required\r\nDdprun-Channel: 7\r\nContent-Length: 0\r\n\r\n", {}, 10s);
    CHECK(error.code == Errc::kMismatch);
    CHECK_THAT(error.message, Catch::Contains("version '7'") && Catch::Contains("same ddprun on all nodes"));
}

TEST_CASE("a peer that never answers, or closes, is an error at the deadline", "[client][unit]") {
    const Error silent = error_of("", {});
    CHECK(silent.code == Errc::kTimeout);
    CHECK_THAT(silent.message, Catch::Contains("no answer during the handshake"));
    // A last try that is cut short does not replace the cause of those before, which were closed.
    for (const Stay stay : {kNever, Stay{.after_visits = 4}}) {
        const Error hangs_up = error_of("", stay, kPatience);
        CHECK(hangs_up.code == Errc::kUnreachable);
        CHECK_THAT(hangs_up.message, Catch::Contains("closed during the handshake") && Catch::Contains(" tries in "));
    }
}

TEST_CASE("a TCPStore at the endpoint, such as torchrun's, is named", "[client][unit]") {
    asio::io_context io(1);
    const auto store = store::StoreServer::listen(io.get_executor(), asio::ip::address_v4::loopback(), 0).value();
    const Endpoint endpoint{"127.0.0.1", store->port()};
    const auto test = [&]() -> awaitable<void> {
        const auto client = co_await ControlClient::connect(endpoint, in(kPatience));
        REQUIRE_FALSE(client.has_value());
        CHECK_THAT(client.error().message, Catch::Contains("a TCPStore answers there, perhaps that of torchrun") &&
                                               Catch::Contains("all nodes of a job need ddprun"));
    };
    REQUIRE(run(io, test()));
}

namespace {

/// A ddprund that is slow at first: does not answer the first handshake, then answers as a TCPStore and as a daemon.
awaitable<void> serve_slowly(tcp::acceptor& acceptor, std::shared_ptr<transport::Channel>& channel) {
    tcp::socket unanswered = co_await acceptor.async_accept(asio::use_awaitable);
    tcp::socket store = co_await acceptor.async_accept(asio::use_awaitable);
    std::array<char, 10> request{};  // VALIDATE, PING and its argument
    co_await asio::async_read(store, asio::buffer(request), asio::use_awaitable);
    co_await asio::async_write(store, asio::buffer(request.data() + 6, 4), asio::use_awaitable);
    tcp::socket agent = co_await acceptor.async_accept(asio::use_awaitable);
    const auto accepted = co_await transport::accept_websocket(std::move(agent), in(5s));
    if (accepted) channel = *accepted;
}

}  // namespace

TEST_CASE("a slow ddprund, which also answers as a TCPStore, is not taken for torchrun's", "[client][unit]") {
    asio::io_context io(1);
    tcp::acceptor acceptor = listen_on_loopback(io);
    std::shared_ptr<transport::Channel> channel;
    spawn(io, serve_slowly(acceptor, channel));
    const auto test = [&]() -> awaitable<void> {
        const auto client = co_await ControlClient::connect(endpoint_of(acceptor), in(400ms));
        INFO((client ? "" : client.error().message));
        CHECK(client.has_value());
    };
    REQUIRE(run(io, test()));
}

TEST_CASE("a malformed message of the daemon is an error that names it", "[client][unit]") {
    asio::io_context io(1);
    tcp::acceptor acceptor = listen_on_loopback(io);
    FakeDaemon daemon;
    daemon.text = "{\"type\":\"assignment\"}";
    spawn(io, daemon.serve(acceptor));
    const auto test = [&]() -> awaitable<void> {
        auto client = co_await ControlClient::connect(endpoint_of(acceptor), in(10s));
        REQUIRE(client.has_value());
        const protocol::AgentMessage heartbeat = protocol::Heartbeat{};
        (*client)->send(heartbeat);
        const auto message = co_await (*client)->receive();
        REQUIRE_FALSE(message.has_value());
        CHECK(message.error().code == Errc::kMalformed);
        CHECK_THAT(message.error().message, Catch::Contains("the rendezvous daemon at 127.0.0.1:"));
    };
    REQUIRE(run(io, test()));
}
