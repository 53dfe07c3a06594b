// Who waits for a send or receive hears of it at once, whoever else was woken, and however often.

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/local_world.hpp"
#include "worker_lib/src/native/p2p_bell.hpp"
#include "worker_lib/src/native/waiter.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

using Clock = std::chrono::steady_clock;

bool has_rung(const detail::Bell& bell) {
    pollfd one{.fd = bell.fd(), .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, 0) > 0;
}

}  // namespace

TEST_CASE("a rank that rang itself without end can still wake its neighbours", "[p2p][unit]") {
    detail::Bell own;
    const detail::Bell neighbour;
    for (int i = 0; i < 5000; ++i) own.ring_own();
    own.ring(neighbour.name());
    CHECK(has_rung(neighbour));
    CHECK(has_rung(own));
    own.silence();
    CHECK_FALSE(has_rung(own));
    own.ring_own();
    CHECK(has_rung(own));
}

TEST_CASE("who waits for what another thread has just received does not sleep until its next look", "[p2p][unit]") {
    // The group's thread receives two messages at once; the callback of the first holds it up before it can end the
    // second, for which we wait.
    constexpr auto kCallback = std::chrono::milliseconds(10);
    constexpr int kRounds = 5;
    const auto results = run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        ProcessGroup& world = context.world();
        Clock::duration least = Clock::duration::max();
        for (int round = 0; round < kRounds; ++round) {
            std::int64_t first = 0;
            std::int64_t second = 0;
            if (world.rank() == 1) {
                world.barrier().wait();
                Batch batch = world.batch();
                batch.send(buffer(first), 0, 1).send(buffer(second), 0, 2).start().wait();
                continue;
            }
            std::promise<void> received;
            std::promise<Clock::time_point> ended;
            Work one = world.recv(buffer(first), 1, 1);
            Work other = world.recv(buffer(second), 1, 2);
            one.then([&](const std::exception_ptr&) {
                received.set_value();
                std::this_thread::sleep_for(kCallback);
                ended.set_value(Clock::now());
            });
            world.barrier().wait();
            received.get_future().wait();
            other.wait();
            const auto done = Clock::now();
            least = std::min(least, done - ended.get_future().get());
        }
        return least;
    });
    CHECK(results[0] < detail::Waiter::kNap / 2);
}
