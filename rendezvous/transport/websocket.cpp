#include "rendezvous/transport/websocket.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <optional>

#include "common/daemon_answer.hpp"
#include "common/endpoint.hpp"
#include "common/system/peer_owner.hpp"
#include "rendezvous/transport/completion.hpp"
#include "rendezvous/transport/websocket_channel.hpp"

namespace ddprun::transport {

/// What the answer to a request depends on besides the request. (Not in the unnamed namespace: g++ 12 warns about
/// coroutines then.)
struct Terms {
    JobLines job_lines;
    bool requires_tls = false;  ///< and the request came without
};

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;

namespace ssl = asio::ssl;

constexpr char kTlsHandshake = 0x16;  // the first byte of a TLS connection
constexpr char kHttpGet = 'G';

bool ended_by_peer(const error_code& ec) {
    return ec == asio::error::eof || ec == asio::error::connection_reset || ec == asio::error::broken_pipe ||
           ec == http::error::end_of_stream || ec == http::error::partial_message;
}

/// Returns why a handshake ended without an answer of the peer.
Error handshake_error(const Watchdog& watchdog, const error_code& ec) {
    if (watchdog.fired()) return {Errc::kTimeout, "no answer during the handshake"};
    if (ended_by_peer(ec)) return {Errc::kClosed, "the connection was closed during the handshake"};
    return {ec, ec.message()};
}

bool is_loopback(const asio::ip::address& address) { return unwrapped(address).is_loopback(); }

// ---- connecting ----

Error connect_error(const Watchdog& watchdog, const error_code& ec) {
    if (watchdog.fired()) return {Errc::kTimeout, "no answer to the connection attempt"};
    return {ec, ec.message()};
}

/// Returns whether the socket is connected to itself. That happens when nothing listens on a port of the ephemeral
/// range and a connection to it from the same host gets that very port as its source (TCP simultaneous open).
bool connected_to_itself(const tcp::socket& socket) {
    error_code ec;
    const auto local = socket.local_endpoint(ec);
    const auto peer = socket.remote_endpoint(ec);
    return !ec && local == peer;
}

/// Returns an error if the process at the other end is on this host and belongs to another user.
std::optional<Error> other_user(tcp::socket& socket) {
    const PeerOwner owner = PeerOwners().find(socket.native_handle());
    if (is_own_or_remote(owner)) return std::nullopt;
    if (owner.kind == PeerOwner::Kind::kUser) return Error{Errc::kInUse, to_string(owner)};
    return Error{Errc::kClosed,
                 fmt::format("the server there is {}, or is behind address translation", to_string(owner))};
}

Error declined(const websocket::response_type& response) {
    if (response.find(kSecurityHeader) != response.end()) {
        return {
            Errc::kUntrusted,
            "requires TLS, and this node has connected without: it was started with --insecure, or its endpoint is a "
            "tunnel that begins at loopback. Pass --insecure to all nodes of the job or to none, and name the "
            "daemon's own host."};
    }
    const auto version = response.find(kChannelHeader);
    if (version == response.end()) return {Errc::kRefused, fmt::format("HTTP status {}", response.result_int())};
    return {Errc::kMismatch, fmt::format("it uses version '{}' of the protocol, this program version '{}'",
                                         version->value().substr(0, 8), kChannelVersion)};
}

/// Upgrades a connection to the daemon, TLS included.
template <typename Stream>
awaitable<Result<std::shared_ptr<Channel>>> ask_upgrade(std::shared_ptr<WebSocketChannel<Stream>> channel,
                                                        tcp::endpoint endpoint, const Watchdog& watchdog) {
    const std::string host = to_string(Endpoint{endpoint.address().to_string(), endpoint.port()});
    websocket::response_type response;
    const auto [ec] = co_await channel->websocket().async_handshake(
        response, host, beast::string_view(kAgentPath.data(), kAgentPath.size()), kTuple);
    if (ec == websocket::error::upgrade_declined) co_return declined(response);
    if (ec && (watchdog.fired() || ended_by_peer(ec))) co_return handshake_error(watchdog, ec);
    if (ec) co_return Error{Errc::kRefused, fmt::format("its answer is not a WebSocket's: {}", ec.message())};
    if (response.find(kChannelHeader) == response.end()) co_return Error{Errc::kRefused, "a WebSocket of another kind"};
    co_return owned(channel);
}

awaitable<Result<std::shared_ptr<Channel>>> connect_plain(tcp::socket socket, tcp::endpoint endpoint,
                                                          TimePoint deadline) {
    auto made = WebSocketChannel<TcpStream>::make(std::move(socket));
    if (!made) co_return made.error();
    const Watchdog watchdog((*made)->socket(), deadline);
    auto channel = co_await ask_upgrade(*made, endpoint, watchdog);
    if (!channel) co_return channel;
    // Not earlier: only now has a process accepted the connection, so that it has an owner.
    if (std::optional<Error> foreign = other_user((*made)->socket())) co_return std::move(*foreign);
    co_return channel;
}

awaitable<Result<std::shared_ptr<Channel>>> connect_tls(tcp::socket socket, tcp::endpoint endpoint, TimePoint deadline,
                                                        Credentials credentials) {
    auto made = WebSocketChannel<TlsStream>::make(std::move(socket), credentials.for_client());
    if (!made) co_return made.error();
    TlsStream& stream = (*made)->websocket().next_layer();
    const Watchdog watchdog((*made)->socket(), deadline);
    const auto [ec] = co_await stream.async_handshake(ssl::stream_base::client, kTuple);
    if (ec && ended_by_peer(ec)) {
        co_return Error{
            Errc::kClosed,
            "the connection was closed during the TLS handshake; it may be an older ddprund, or have no room"};
    }
    if (ec && watchdog.fired()) co_return handshake_error(watchdog, ec);
    if (ec) co_return tls_error_of_client(ec, credentials);
    if (!shares_key(stream.native_handle())) co_return Error{Errc::kRefused, "TLS without the key of the job"};
    auto channel = co_await ask_upgrade(*made, endpoint, watchdog);
    co_return channel;
}

// ---- accepting ----

using Request = http::request<http::empty_body>;

constexpr std::string_view kWithoutTls =
    "an agent without TLS, which connections from other hosts need; was it started with --insecure?";

/// Returns why a request is refused: it is not an agent's, or its agent has another version of the protocol. Returns an
/// empty text for a request that is accepted.
std::string_view refusal_of(const Request& request, const Terms& terms) {
    if (!websocket::is_upgrade(request)) return "a plain HTTP request, not an agent's";
    if (request.target() != beast::string_view(kAgentPath.data(), kAgentPath.size()))
        return "a WebSocket for another path";
    if (request.find(http::field::origin) != request.end()) return "a WebSocket opened by a web page";
    const auto version = request.find(kChannelHeader);
    if (version == request.end()) return "a WebSocket that is not an agent's";
    if (version->value() != beast::string_view(kChannelVersion.data(), kChannelVersion.size())) {
        return "an agent with another version of the protocol";
    }
    if (terms.requires_tls) return kWithoutTls;
    return {};
}

template <typename Stream>
awaitable<void> answer_stranger(Stream& stream, unsigned http_version, std::string_view why, const Terms& terms) {
    http::response<http::string_body> response(http::status::upgrade_required, http_version);
    response.set(http::field::server, "ddprund");
    response.set(http::field::upgrade, "websocket");
    response.set(http::field::connection, "Upgrade, close");
    response.set(http::field::content_type, "text/plain");
    response.set(kChannelHeader, kChannelVersion);
    if (why == kWithoutTls) response.set(kSecurityHeader, "tls");
    response.body() = fmt::format("{}{}", kAboutDaemon, terms.job_lines ? terms.job_lines() : "");
    response.prepare_payload();
    co_await http::async_write(stream, response, kTuple);  // an error cannot matter: the connection ends either way
}

/// Reads the upgrade request and answers it. Returns an error, or nothing when the peer is an agent. (Not a
/// Result<void>: g++ 12 warns about those here.)
template <typename Stream>
awaitable<std::optional<Error>> upgrade(WebSocketChannel<Stream>& channel, const Watchdog& watchdog,
                                        const Terms& terms) {
    beast::flat_buffer buffer(kMaxHandshakeBytes);
    http::request_parser<http::empty_body> parser;
    parser.header_limit(kMaxHandshakeBytes);
    auto [ec, n] = co_await http::async_read(channel.websocket().next_layer(), buffer, parser, kTuple);
    if (ec && !watchdog.fired() && !ended_by_peer(ec)) {
        co_return Error{Errc::kMalformed, fmt::format("not a proper HTTP request: {}", ec.message())};
    }
    if (ec) co_return handshake_error(watchdog, ec);

    if (const std::string_view why = refusal_of(parser.get(), terms); !why.empty()) {
        co_await answer_stranger(channel.websocket().next_layer(), parser.get().version(), why, terms);
        co_return Error{why == kWithoutTls ? Errc::kUntrusted : Errc::kRefused, std::string(why)};
    }
    // Beast would lose these bytes, and an agent sends none before it is answered.
    if (buffer.size() > 0) co_return Error{Errc::kMalformed, "bytes after the upgrade request"};
    std::tie(ec) = co_await channel.websocket().async_accept(parser.get(), kTuple);
    if (ec) co_return handshake_error(watchdog, ec);
    co_return std::nullopt;
}

awaitable<Result<std::shared_ptr<Channel>>> accept_plain(tcp::socket socket, TimePoint deadline, Terms terms) {
    auto made = WebSocketChannel<TcpStream>::make(std::move(socket));
    if (!made) co_return made.error();
    const Watchdog watchdog((*made)->socket(), deadline);
    const std::optional<Error> problem = co_await upgrade(**made, watchdog, terms);
    if (problem) co_return *problem;
    co_return owned(*made);
}

awaitable<Result<std::shared_ptr<Channel>>> accept_tls(tcp::socket socket, TimePoint deadline, Terms terms,
                                                       Credentials credentials) {
    auto made = WebSocketChannel<TlsStream>::make(std::move(socket), credentials.for_server());
    if (!made) co_return made.error();
    TlsStream& stream = (*made)->websocket().next_layer();
    const Watchdog watchdog((*made)->socket(), deadline);
    const auto [ec] = co_await stream.async_handshake(ssl::stream_base::server, kTuple);
    if (ec && (watchdog.fired() || ended_by_peer(ec))) co_return handshake_error(watchdog, ec);
    if (ec) co_return tls_error_of_server(ec);
    if (!shares_key(stream.native_handle())) co_return Error{Errc::kUntrusted, "TLS without the key of the job"};
    const std::optional<Error> problem = co_await upgrade(**made, watchdog, terms);
    if (problem) co_return *problem;
    co_return owned(*made);
}

/// Returns whether a connection does not leave this host.
bool is_local(const tcp::socket& socket) {
    error_code ec;
    const auto local = socket.local_endpoint(ec);
    if (ec) return false;
    const auto peer = socket.remote_endpoint(ec);
    return !ec && is_loopback(local.address()) && is_loopback(peer.address());
}

}  // namespace

awaitable<Result<std::shared_ptr<Channel>>> connect_websocket(tcp::endpoint endpoint, TimePoint deadline,
                                                              Security security) {
    const bool plain = security.insecure || is_loopback(endpoint.address());
    if (!plain && !security.credentials) {
        co_return Error{Errc::kUntrusted,
                        "is on another host, and this program has no job key. Name that host by its own name or "
                        "address, or pass --insecure to all nodes of the job."};
    }
    tcp::socket socket(co_await asio::this_coro::executor);
    error_code ec;
    socket.open(endpoint.protocol(), ec);
    if (ec) co_return Error{ec, fmt::format("cannot open a socket: {}", ec.message())};
    prepare(socket);
    {
        const Watchdog watchdog(socket, deadline);
        std::tie(ec) = co_await socket.async_connect(endpoint, kTuple);
        if (ec) co_return connect_error(watchdog, ec);
    }
    if (connected_to_itself(socket)) {
        ec = asio::error::connection_refused;
        co_return Error{ec, ec.message()};
    }
    if (plain) {
        auto channel = co_await connect_plain(std::move(socket), endpoint, deadline);
        co_return channel;
    }
    auto channel = co_await connect_tls(std::move(socket), endpoint, deadline, *security.credentials);
    co_return channel;
}

awaitable<Result<std::shared_ptr<Channel>>> accept_websocket(tcp::socket socket, TimePoint deadline, JobLines job_lines,
                                                             Security security) {
    prepare(socket);
    // The first byte distinguishes the protocols. It stays unread, for the one that it begins.
    char first = 0;
    {
        const Watchdog watchdog(socket, deadline);
        auto [ec] = co_await socket.async_wait(tcp::socket::wait_read, kTuple);
        if (!ec && ::recv(socket.native_handle(), &first, 1, MSG_PEEK | MSG_DONTWAIT) != 1) ec = asio::error::eof;
        if (ec) co_return handshake_error(watchdog, ec);
    }
    Terms terms{std::move(job_lines)};
    if (first == kTlsHandshake && security.credentials) {
        auto channel = co_await accept_tls(std::move(socket), deadline, std::move(terms), *security.credentials);
        co_return channel;
    }
    if (first == kTlsHandshake) {
        const Watchdog watchdog(socket, deadline);
        co_await asio::async_write(socket, asio::buffer(kNoTlsHere), kTuple);  // an error cannot matter
        co_return Error{Errc::kUntrusted,
                        "TLS, which this ddprund does not use: it was started with --insecure, or "
                        "serves loopback alone"};
    }
    if (first != kHttpGet) co_return Error{Errc::kMalformed, "neither an agent nor HTTP"};
    terms.requires_tls = !security.insecure && !is_local(socket);
    auto channel = co_await accept_plain(std::move(socket), deadline, std::move(terms));
    co_return channel;
}

}  // namespace ddprun::transport
