#include "tests/unit/rendezvous/daemon/loop.hpp"

#include <boost/asio/read.hpp>
#include <boost/asio/this_coro.hpp>

namespace ddprun::test {

bool run(asio::io_context& io, awaitable<void> main, Duration limit) {
    bool done = false;
    std::exception_ptr failure;
    asio::co_spawn(io, std::move(main), [&](std::exception_ptr thrown) {
        done = true;
        failure = thrown;
        io.stop();
    });
    io.restart();
    io.run_for(limit);
    if (failure) std::rethrow_exception(failure);
    return done;
}

void spawn(asio::io_context& io, awaitable<void> task) {
    asio::co_spawn(io, std::move(task), [](std::exception_ptr thrown) {
        if (thrown) std::terminate();
    });
}

awaitable<void> pause(Duration duration) {
    asio::steady_timer timer(co_await asio::this_coro::executor, duration);
    co_await timer.async_wait(kTuple);
}

awaitable<bool> eventually(std::function<bool()> condition, Duration limit) {
    const TimePoint deadline = in(limit);
    while (!condition()) {
        if (Clock::now() >= deadline) co_return false;
        co_await pause(2ms);
    }
    co_return true;
}

tcp::acceptor listen_on_loopback(asio::io_context& io) {
    return tcp::acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
}

awaitable<tcp::socket> dial_plain(std::uint16_t port) {
    tcp::socket socket(co_await asio::this_coro::executor);
    co_await socket.async_connect(tcp::endpoint(asio::ip::address_v4::loopback(), port), asio::use_awaitable);
    co_return socket;
}

awaitable<std::string> read_all(tcp::socket& socket) {
    std::string text;
    co_await asio::async_read(socket, asio::dynamic_buffer(text), kTuple);  // ends at the peer's end, or with an error
    co_return text;
}

}  // namespace ddprun::test
