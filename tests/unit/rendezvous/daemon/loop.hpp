#pragma once
// A test's own io_context: runs one coroutine to its end within a time, and finds free ports. The tests' thread only.

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <exception>
#include <functional>
#include <string>

#include "common/clock.hpp"

namespace ddprun::test {

using namespace std::chrono_literals;
namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;

inline constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

inline TimePoint in(Duration duration) { return Clock::now() + duration; }

/// Runs `main` on `io`, with everything that is spawned there, until it returns; throws what it throws. False: it was
/// not done within `limit`.
[[nodiscard]] bool run(asio::io_context& io, awaitable<void> main, Duration limit = 20s);

/// Starts `task` beside the rest; an exception in it ends the process, because no test expects one.
void spawn(asio::io_context& io, awaitable<void> task);

awaitable<void> pause(Duration duration);

/// Polls until `condition` holds. False: it did not within `limit`.
awaitable<bool> eventually(std::function<bool()> condition, Duration limit = 10s);

/// Listens on 127.0.0.1, on a port that the system chooses.
tcp::acceptor listen_on_loopback(asio::io_context& io);

/// Opens a plain connection to 127.0.0.1, for tests of peers that do not speak the protocol.
awaitable<tcp::socket> dial_plain(std::uint16_t port);

/// Returns everything that the peer sends until it ends the connection.
awaitable<std::string> read_all(tcp::socket& socket);

}  // namespace ddprun::test
