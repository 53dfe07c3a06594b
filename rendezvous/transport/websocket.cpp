#include "rendezvous/transport/websocket.hpp"

#include <fmt/format.h>

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
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;

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
    const auto version = response.find(kChannelHeader);
    if (version == response.end()) return {Errc::kRefused, fmt::format("HTTP status {}", response.result_int())};
    return {Errc::kMismatch, fmt::format("it uses version '{}' of the protocol, this program version '{}'",
                                         version->value().substr(0, 8), kChannelVersion)};
}

// ---- accepting ----

using Request = http::request<http::empty_body>;

/// Returns why a request is refused: it is not an agent's, or its agent has another version of the protocol. Returns an
/// empty text for a request that is accepted.
std::string_view refusal_of(const Request& request) {
    if (!websocket::is_upgrade(request)) return "a plain HTTP request, not an agent's";
    if (request.target() != beast::string_view(kAgentPath.data(), kAgentPath.size()))
        return "a WebSocket for another path";
    if (request.find(http::field::origin) != request.end()) return "a WebSocket opened by a web page";
    const auto version = request.find(kChannelHeader);
    if (version == request.end()) return "a WebSocket that is not an agent's";
    if (version->value() != beast::string_view(kChannelVersion.data(), kChannelVersion.size())) {
        return "an agent with another version of the protocol";
    }
    return {};
}

template <typename Stream>
awaitable<void> answer_stranger(Stream& stream, unsigned http_version, const JobLine& job_line) {
    http::response<http::string_body> response(http::status::upgrade_required, http_version);
    response.set(http::field::server, "ddprund");
    response.set(http::field::upgrade, "websocket");
    response.set(http::field::connection, "Upgrade, close");
    response.set(http::field::content_type, "text/plain");
    response.set(kChannelHeader, kChannelVersion);
    response.body() = fmt::format("{}{}", kAboutDaemon, job_line ? job_line() : std::string_view());
    response.prepare_payload();
    co_await http::async_write(stream, response, kTuple);  // an error cannot matter: the connection ends either way
}

/// Reads the upgrade request and answers it. Returns an error, or nothing when the peer is an agent. (Not a
/// Result<void>: g++ 12 warns about those here.)
template <typename Stream>
awaitable<std::optional<Error>> upgrade(WebSocketChannel<Stream>& channel, beast::flat_buffer& buffer,
                                        const Watchdog& watchdog, const JobLine& job_line) {
    http::request_parser<http::empty_body> parser;
    parser.header_limit(kMaxHandshakeBytes);
    auto [ec, n] = co_await http::async_read(channel.websocket().next_layer(), buffer, parser, kTuple);
    if (ec && !watchdog.fired() && !ended_by_peer(ec)) {
        co_return Error{Errc::kMalformed, fmt::format("not a proper HTTP request: {}", ec.message())};
    }
    if (ec) co_return handshake_error(watchdog, ec);

    if (const std::string_view why = refusal_of(parser.get()); !why.empty()) {
        co_await answer_stranger(channel.websocket().next_layer(), parser.get().version(), job_line);
        co_return Error{Errc::kRefused, std::string(why)};
    }
    // Beast would lose these bytes, and an agent sends none before it is answered.
    if (buffer.size() > 0) co_return Error{Errc::kMalformed, "bytes after the upgrade request"};
    std::tie(ec) = co_await channel.websocket().async_accept(parser.get(), kTuple);
    if (ec) co_return handshake_error(watchdog, ec);
    co_return std::nullopt;
}

}  // namespace

awaitable<Result<std::shared_ptr<Channel>>> connect_websocket(tcp::endpoint endpoint, TimePoint deadline) {
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
    auto made = WebSocketChannel<TcpStream>::make(TcpStream(std::move(socket)));
    if (!made) co_return made.error();
    const auto channel = std::move(*made);

    const Watchdog watchdog(channel->socket(), deadline);
    const std::string host = to_string(Endpoint{endpoint.address().to_string(), endpoint.port()});
    websocket::response_type response;
    std::tie(ec) = co_await channel->websocket().async_handshake(
        response, host, beast::string_view(kAgentPath.data(), kAgentPath.size()), kTuple);
    if (ec == websocket::error::upgrade_declined) co_return declined(response);
    if (ec && (watchdog.fired() || ended_by_peer(ec))) co_return handshake_error(watchdog, ec);
    if (ec) co_return Error{Errc::kRefused, fmt::format("its answer is not a WebSocket's: {}", ec.message())};
    if (response.find(kChannelHeader) == response.end()) co_return Error{Errc::kRefused, "a WebSocket of another kind"};
    // Not earlier: only now has a process accepted the connection, so that it has an owner.
    if (std::optional<Error> foreign = other_user(channel->socket())) co_return std::move(*foreign);
    co_return owned(channel);
}

awaitable<Result<std::shared_ptr<Channel>>> accept_websocket(tcp::socket socket, TimePoint deadline, JobLine job_line) {
    prepare(socket);
    auto made = WebSocketChannel<TcpStream>::make(TcpStream(std::move(socket)));
    if (!made) co_return made.error();
    const auto channel = std::move(*made);
    const Watchdog watchdog(channel->socket(), deadline);

    // The first byte distinguishes the protocols: TLS would be a WebSocketChannel over another stream, from here on.
    beast::flat_buffer buffer(kMaxHandshakeBytes);
    const auto [ec, n] = co_await channel->socket().async_read_some(buffer.prepare(kMaxHandshakeBytes / 2), kTuple);
    if (ec) co_return handshake_error(watchdog, ec);
    buffer.commit(n);
    const char first = *static_cast<const char*>(buffer.cdata().data());
    if (first == kTlsHandshake) co_return Error{Errc::kMalformed, "TLS, which this ddprund does not support"};
    if (first != kHttpGet) co_return Error{Errc::kMalformed, "neither an agent nor HTTP"};

    const std::optional<Error> problem = co_await upgrade(*channel, buffer, watchdog, job_line);
    if (problem) co_return *problem;
    co_return owned(channel);
}

}  // namespace ddprun::transport
