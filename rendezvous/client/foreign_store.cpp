#include "rendezvous/client/foreign_store.hpp"

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/write.hpp>
#include <cstring>
#include <string_view>
#include <tuple>
#include <utility>

#include "rendezvous/client/resolve.hpp"
#include "rendezvous/transport/completion.hpp"
#include "rendezvous/transport/socket.hpp"

namespace ddprun::client {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;

/// VALIDATE and PING of docs/protocol.md. The answer to a PING is its argument.
constexpr std::string_view kValidate("\0\xce\xf7\x85\x3c", 5);
constexpr std::string_view kPing("\x0d", 1);
constexpr std::string_view kArgument = "ddpr";

awaitable<bool> answers_ping(tcp::endpoint endpoint, TimePoint deadline) {
    tcp::socket socket(co_await asio::this_coro::executor);
    error_code ec;
    socket.open(endpoint.protocol(), ec);
    if (ec) co_return false;
    transport::prepare(socket);
    const transport::Watchdog watchdog(socket, deadline);
    std::tie(ec) = co_await socket.async_connect(endpoint, transport::kTuple);
    if (ec) co_return false;
    const std::array request{asio::buffer(kValidate), asio::buffer(kPing), asio::buffer(kArgument)};
    std::size_t bytes = 0;
    std::tie(ec, bytes) = co_await asio::async_write(socket, request, transport::kTuple);
    if (ec) co_return false;
    std::array<char, kArgument.size()> answer{};
    std::tie(ec, bytes) = co_await asio::async_read(socket, asio::buffer(answer), transport::kTuple);
    co_return !ec && std::string_view(answer.data(), answer.size()) == kArgument;
}

}  // namespace

awaitable<bool> is_tcp_store(Endpoint endpoint, TimePoint deadline) {
    const Result<Addresses> addresses = co_await async_resolve(std::move(endpoint), deadline);
    if (!addresses) co_return false;
    for (const SocketAddress& address : *addresses) {
        tcp::endpoint to;
        if (address.size > to.capacity()) continue;
        std::memcpy(to.data(), &address.bytes, address.size);
        to.resize(address.size);
        const bool answered = co_await answers_ping(to, deadline);
        if (answered) co_return true;
    }
    co_return false;
}

}  // namespace ddprun::client
