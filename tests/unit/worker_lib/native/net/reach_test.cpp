// Connecting to an address that does not answer for a while. A listener whose queue is full stands for it: the kernel
// drops what arrives.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>
#include <vector>

#include "common/errc.hpp"
#include "tests/catch.hpp"
#include "worker_lib/src/native/net/reach.hpp"
#include "worker_lib/src/native/net/sockets.hpp"

using namespace ddp::detail;
using namespace std::chrono_literals;
using ddprun::Clock;
using ddprun::UniqueFd;

namespace {

/// A listener on the loopback that answers no further connection.
struct FullListener {
    FullListener() : listener(listen_tcp("127.0.0.1", port).value()) {
        REQUIRE(::listen(listener.get(), 0) == 0);
        for (int i = 0; i < 8; ++i) waiting.push_back(begin_connect_tcp("127.0.0.1", port).value());
    }
    /// Takes what waits, so that the next connection is answered.
    void make_room() const {
        for (;;) {
            const UniqueFd taken(::accept(listener.get(), nullptr, nullptr));
            if (!taken) return;
        }
    }

    int port = 0;
    UniqueFd listener;
    std::vector<UniqueFd> waiting;
};

}  // namespace

TEST_CASE("an address that does not answer is noted, and connected to when it answers", "[sockets]") {
    FullListener full;
    std::vector<bool> notes;
    const ReachLimits limits{.deadline = Clock::now() + 60s, .noticed = 300ms};
    const auto connected = connect_when_reachable("127.0.0.1", full.port, limits, [&](bool unreachable) {
        notes.push_back(unreachable);
        full.waiting.clear();
        full.make_room();
    });
    CHECK(connected.has_value());
    CHECK(notes == std::vector<bool>{true, false});
}

TEST_CASE("an address that does not answer until the deadline is a timeout", "[sockets]") {
    FullListener full;
    int notes = 0;
    const ReachLimits limits{.deadline = Clock::now() + 300ms};
    const auto none = connect_when_reachable("127.0.0.1", full.port, limits, [&](bool) { ++notes; });
    REQUIRE(none.has_error());
    CHECK(none.error().code == ddprun::Errc::kTimeout);
    CHECK(notes == 0);
}

TEST_CASE("an address that does not answer for its limit is given up as unreachable, long before the deadline",
          "[sockets]") {
    FullListener full;
    std::vector<bool> notes;
    const auto began = Clock::now();
    const ReachLimits limits{.deadline = began + 60s, .noticed = 300ms, .unanswered = 600ms};
    const auto none =
        connect_when_reachable("127.0.0.1", full.port, limits, [&](bool unreachable) { notes.push_back(unreachable); });
    REQUIRE(none.has_error());
    CHECK(is_unreachable(none.error()));
    CHECK(notes == std::vector<bool>{true});
    CHECK(Clock::now() - began < 30s);
}

TEST_CASE("an address that refuses connections fails at once", "[sockets]") {
    int port = 0;
    UniqueFd listener = listen_tcp("127.0.0.1", port).value();
    listener.reset();
    const auto began = Clock::now();
    const auto none = connect_when_reachable("127.0.0.1", port, {.deadline = began + 60s}, [](bool) {});
    REQUIRE(none.has_error());
    CHECK_THAT(none.error().message,
               Catch::Contains("cannot connect to 127.0.0.1 port ") && Catch::Contains("refused"));
    CHECK(Clock::now() - began < 10s);
}
