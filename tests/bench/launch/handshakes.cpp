// The cost of a TLS handshake through the transport, over loopback, beside OpenSSL's alone: with the same contexts, in
// memory. Both ends are in this process.
// usage: bench_launch_handshakes [HANDSHAKES [ROUNDS]]
// Prints the CPU microseconds of a handshake in each round, and the medians of the ratios to OpenSSL alone: of the
// handshake, and of the handshake with the TCP connection, whose cost is that of connections without TLS.

#include <openssl/ssl.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <stdexcept>
#include <vector>

#include "common/job_key.hpp"
#include "rendezvous/transport/tls.hpp"
#include "rendezvous/transport/tls_stream.hpp"

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace ddprun;
using transport::Credentials;
using transport::TlsStream;

double cpu_microseconds() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

void rethrow(std::exception_ptr error) {
    if (error) std::rethrow_exception(error);
}

struct Free {
    void operator()(SSL* connection) const { SSL_free(connection); }
};
using Connection = std::unique_ptr<SSL, Free>;

/// Makes a handshake in memory.
void bare_handshake(const Credentials& credentials) {
    const Connection client(SSL_new(credentials.for_client().native_handle()));
    const Connection server(SSL_new(credentials.for_server().native_handle()));
    BIO* near = nullptr;
    BIO* far = nullptr;
    if (BIO_new_bio_pair(&near, 0, &far, 0) != 1) throw std::runtime_error("no memory for a pair of buffers");
    SSL_set_bio(client.get(), near, near);
    SSL_set_bio(server.get(), far, far);
    SSL_set_connect_state(client.get());
    SSL_set_accept_state(server.get());
    for (int i = 0; i < 4; ++i) {
        const int connected = SSL_do_handshake(client.get());
        const int accepted = SSL_do_handshake(server.get());
        if (connected == 1 && accepted == 1) return;
    }
    throw std::runtime_error("the bare handshake does not end");
}

/// Makes `count` handshakes over loopback, as an agent and the daemon make them.
asio::awaitable<void> connect(tcp::endpoint to, const Credentials& credentials, int count) {
    for (int i = 0; i < count; ++i) {
        tcp::socket socket(co_await asio::this_coro::executor);
        co_await socket.async_connect(to, asio::use_awaitable);
        TlsStream stream(std::move(socket), credentials.for_client());
        co_await stream.async_handshake(asio::ssl::stream_base::client, asio::use_awaitable);
    }
}
asio::awaitable<void> accept(tcp::acceptor& acceptor, const Credentials& credentials, int count) {
    for (int i = 0; i < count; ++i) {
        TlsStream stream(co_await acceptor.async_accept(asio::use_awaitable), credentials.for_server());
        co_await stream.async_handshake(asio::ssl::stream_base::server, asio::use_awaitable);
    }
}

double bare(const Credentials& credentials, int count) {
    const double begin = cpu_microseconds();
    for (int i = 0; i < count; ++i) bare_handshake(credentials);
    return (cpu_microseconds() - begin) / count;
}

/// Make `count` connections without TLS.
asio::awaitable<void> connect_plain(tcp::endpoint to, int count) {
    for (int i = 0; i < count; ++i) {
        tcp::socket socket(co_await asio::this_coro::executor);
        co_await socket.async_connect(to, asio::use_awaitable);
    }
}
asio::awaitable<void> accept_plain(tcp::acceptor& acceptor, int count) {
    for (int i = 0; i < count; ++i) co_await acceptor.async_accept(asio::use_awaitable);
}

template <typename Connect, typename Accept>
double over_loopback(int count, Connect connect_all, Accept accept_all) {
    asio::io_context io(1);
    tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    asio::co_spawn(io, accept_all(acceptor), rethrow);
    asio::co_spawn(io, connect_all(acceptor.local_endpoint()), rethrow);
    const double begin = cpu_microseconds();
    io.run();
    return (cpu_microseconds() - begin) / count;
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
    const int count = argc > 1 ? std::atoi(argv[1]) : 1000;
    const int rounds = argc > 2 ? std::atoi(argv[2]) : 11;
    JobKey::Bytes bytes;
    bytes.fill(7);
    const Credentials credentials = Credentials::make(JobKey(bytes, "the bench")).value();
    std::vector<double> ratios;
    std::vector<double> ratios_with_tcp;
    std::printf("CPU us, both ends: handshake of OpenSSL alone, connection with ours, connection without TLS\n");
    for (int round = 0; round < rounds; ++round) {
        const double alone = bare(credentials, count);
        const double ours = over_loopback(
            count, [&](tcp::endpoint to) { return connect(to, credentials, count); },
            [&](tcp::acceptor& acceptor) { return accept(acceptor, credentials, count); });
        const double plain = over_loopback(
            count, [&](tcp::endpoint to) { return connect_plain(to, count); },
            [&](tcp::acceptor& acceptor) { return accept_plain(acceptor, count); });
        ratios.push_back((ours - plain) / alone);
        ratios_with_tcp.push_back(ours / alone);
        std::printf("%8.1f %8.1f %8.1f\n", alone, ours, plain);
    }
    std::printf("handshake %.2f x, goal 1.3 x; with the TCP connection %.2f x\n", median(ratios),
                median(ratios_with_tcp));
}
