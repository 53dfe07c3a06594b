#include "launcher/meeting/https.hpp"

#include <fmt/format.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstring>
#include <exception>
#include <optional>
#include <vector>

#include "common/system/resolve.hpp"

namespace ddprun::launcher {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace ssl = asio::ssl;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using Request = http::request<http::string_body>;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kMaxAnswerBytes = 1 << 20;

/// Returns the error of one step. A step that has run into the deadline of its stream is a timeout.
Error step_error(std::string_view step, const error_code& ec) {
    if (ec == beast::error::timeout) return {Errc::kTimeout, fmt::format("no answer while {}", step)};
    if (ec == asio::error::connection_refused) return {ec, "connection refused"};
    if (ec == http::error::end_of_stream || ec == asio::error::eof || ec == asio::error::connection_reset ||
        ec == asio::error::broken_pipe || ec == http::error::partial_message || ec == ssl::error::stream_truncated) {
        return {Errc::kClosed, fmt::format("the connection was closed while {}", step)};
    }
    if (ec.category() == http::make_error_code(http::error::bad_version).category())
        return {Errc::kMalformed, "its answer is not HTTP"};
    if (ec.category() == asio::error::get_ssl_category()) return {ec, ec.message()};
    return {Errc::kUnreachable, ec.message()};
}

Error tls_error(const Endpoint& server, const error_code& ec, long verification) {
    if (verification != X509_V_OK) {
        return {Errc::kRefused,
                fmt::format("the TLS certificate of {} is not accepted: {}. Pass the file of its authority as "
                            "--rdzv-conf cacert=FILE, and the host name that is in the certificate as --rdzv-endpoint.",
                            to_string(server), X509_verify_cert_error_string(verification))};
    }
    if (ec.category() == asio::error::get_ssl_category()) {
        return {Errc::kRefused, fmt::format("no TLS connection to {}: {}. If the port speaks plain HTTP, leave out "
                                            "protocol=https; if it asks for a client certificate, pass --rdzv-conf "
                                            "cert=FILE,key=FILE.",
                                            to_string(server), ec.message())};
    }
    return step_error("making a TLS connection", ec);
}

Request to_beast(const Endpoint& server, const HttpRequest& request) {
    Request result(request.body.empty() ? http::verb::get : http::verb::post, request.path, 11);
    result.set(http::field::host, to_string(server));
    result.set(http::field::user_agent, "ddprun");
    result.set(http::field::connection, "close");
    if (!request.authorization.empty()) result.set(http::field::authorization, request.authorization);
    if (!request.body.empty()) {
        result.set(http::field::content_type, "application/json");
        result.body() = request.body;
    }
    result.prepare_payload();
    return result;
}

/// Sends the request and reads the answer, over TCP or TLS.
template <typename Stream>
awaitable<std::optional<Error>> exchange(Stream& stream, const Request& request, HttpAnswer& answer) {
    auto [write_error, written] = co_await http::async_write(stream, request, kTuple);
    if (write_error) co_return step_error("sending a request", write_error);
    beast::flat_buffer buffer;
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMaxAnswerBytes);
    auto [read_error, got] = co_await http::async_read(stream, buffer, parser, kTuple);
    if (read_error) co_return step_error("waiting for an answer", read_error);
    answer.status = parser.get().result_int();
    answer.body = std::move(parser.get().body());
    co_return std::nullopt;
}

awaitable<std::optional<Error>> connect(beast::tcp_stream& stream, const std::vector<tcp::endpoint>& addresses,
                                        HttpAnswer& answer) {
    auto [ec, reached] = co_await stream.async_connect(addresses, kTuple);
    if (ec) co_return step_error("connecting", ec);
    error_code local_error;
    const tcp::endpoint local = stream.socket().local_endpoint(local_error);
    if (!local_error) answer.own_address = local.address().to_string();
    co_return std::nullopt;
}

std::optional<Error> use_file(const std::string& file, std::string_view key, const error_code& ec) {
    if (!ec) return std::nullopt;
    return Error{Errc::kUsage,
                 fmt::format("--rdzv-conf {}={}: cannot use this file: {}. It must be a PEM file that this "
                             "user can read.",
                             key, file, ec.message())};
}

std::optional<Error> prepare(ssl::context& context, const TlsSettings& tls) {
    error_code ec;
    context.set_verify_mode(ssl::verify_peer, ec);
    if (tls.ca_file.empty()) {
        context.set_default_verify_paths(ec);
    } else {
        context.load_verify_file(tls.ca_file, ec);
        if (auto failed = use_file(tls.ca_file, "cacert", ec)) return failed;
    }
    if (tls.cert_file.empty()) return std::nullopt;
    // Without it OpenSSL would ask on the terminal for the password of an encrypted key, and wait.
    context.set_password_callback([](std::size_t, ssl::context::password_purpose) { return std::string(); }, ec);
    context.use_certificate_chain_file(tls.cert_file, ec);
    if (auto failed = use_file(tls.cert_file, "cert", ec)) return failed;
    context.use_private_key_file(tls.key_file, ssl::context::pem, ec);
    return use_file(tls.key_file, "key", ec);
}

awaitable<std::optional<Error>> talk_plain(const std::vector<tcp::endpoint>& addresses, const Request& request,
                                           TimePoint deadline, HttpAnswer& answer) {
    beast::tcp_stream stream(co_await asio::this_coro::executor);
    stream.expires_at(deadline);
    if (auto failed = co_await connect(stream, addresses, answer)) co_return failed;
    co_return co_await exchange(stream, request, answer);
}

/// Has OpenSSL compare the certificate with the name or address by which the user knows the server. Returns false if
/// it cannot: then the connection must not be used.
bool expect_name(SSL* connection, const Endpoint& server) {
    if (numeric_address(server))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(connection), server.host.c_str()) == 1;
    // The name that the server sees is not for an address.
    return SSL_set1_host(connection, server.host.c_str()) == 1 &&
           SSL_set_tlsext_host_name(connection, server.host.c_str()) == 1;
}

awaitable<std::optional<Error>> talk_tls(const Endpoint& server, const std::vector<tcp::endpoint>& addresses,
                                         ssl::context& context, const Request& request, TimePoint deadline,
                                         HttpAnswer& answer) {
    ssl::stream<beast::tcp_stream> stream(co_await asio::this_coro::executor, context);
    beast::get_lowest_layer(stream).expires_at(deadline);
    if (!expect_name(stream.native_handle(), server)) {
        co_return Error{Errc::kRefused,
                        fmt::format("the certificate of {} cannot be checked against that address. Write "
                                    "the server's name or address as its certificate has it.",
                                    to_string(server))};
    }
    if (auto failed = co_await connect(beast::get_lowest_layer(stream), addresses, answer)) co_return failed;
    auto [ec] = co_await stream.async_handshake(ssl::stream_base::client, kTuple);
    if (ec) {
        co_return tls_error(server, ec, SSL_get_verify_result(stream.native_handle()));
    }
    auto failed = co_await exchange(stream, request, answer);  // the answer has its length: no shutdown is needed
    // A server that asks for a client's certificate reports its absence here, after the handshake of TLS 1.3.
    if (failed && failed->code.category() == asio::error::get_ssl_category())
        co_return tls_error(server, failed->code, X509_V_OK);
    co_return failed;
}

std::vector<tcp::endpoint> to_asio(const Addresses& addresses) {
    std::vector<tcp::endpoint> endpoints;
    for (const SocketAddress& address : addresses) {
        tcp::endpoint endpoint;
        endpoint.resize(address.size);
        std::memcpy(endpoint.data(), &address.bytes, address.size);
        endpoints.push_back(endpoint);
    }
    return endpoints;
}

}  // namespace

Result<HttpAnswer> request_http(const Endpoint& server, const TlsSettings& tls, const HttpRequest& request,
                                TimePoint deadline) {
    ssl::context context(ssl::context::tls_client);
    if (tls.on) {
        if (auto failed = prepare(context, tls)) return *failed;
    }
    const auto resolved = resolve(server, deadline);
    if (!resolved) return Error{Errc::kUnreachable, resolved.error().message};
    const std::vector<tcp::endpoint> addresses = to_asio(*resolved);
    const Request message = to_beast(server, request);

    asio::io_context io(1);
    HttpAnswer answer;
    std::optional<Error> failed;
    const auto done = [&failed](std::exception_ptr thrown, std::optional<Error> error) {
        if (thrown) std::rethrow_exception(thrown);
        failed = std::move(error);
    };
    if (tls.on) {
        asio::co_spawn(io, talk_tls(server, addresses, context, message, deadline, answer), done);
    } else {
        asio::co_spawn(io, talk_plain(addresses, message, deadline, answer), done);
    }
    io.run();
    if (failed) return *failed;
    return answer;
}

}  // namespace ddprun::launcher
