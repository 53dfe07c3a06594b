// Watch: what the leader of a node reports to the others.

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <map>
#include <utility>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/node_ranks.hpp"
#include "worker_lib/src/native/net/watch.hpp"

using namespace ddp;
using namespace ddp::testing;
using detail::Alarm;

TEST_CASE("a rank that ends while it reports a failure is reported as departed", "[native][unit]") {
    Ranks ranks(2);
    std::array<int, 2> pair{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair.data()) == 0);
    const ddprun::UniqueFd other(pair[0]);
    std::map<int, detail::Link> peers;
    peers[2].socket = ddprun::UniqueFd(pair[1]);
    ranks.control(0).poisoned_by.store(2);  // but not which operations that ends
    ranks[1].progress.leave(detail::Departure::kEnded);
    const detail::Watch watch(ranks[0], 7, std::move(peers));

    pollfd ready{.fd = other.get(), .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&ready, 1, 5000) == 1);
    Alarm alarm;
    REQUIRE(::recv(other.get(), &alarm, sizeof(alarm), 0) == static_cast<ssize_t>(sizeof(alarm)));
    CHECK(alarm.kind == Alarm::Kind::kDeparted);
    CHECK(alarm.how == detail::Departure::kEnded);
}
