// Sends and receives of several threads, callbacks included: all finish, and each waiter notices that at once, also
// when another thread was woken.

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "worker_lib/src/native/shm/doorbell.hpp"
#include "worker_lib/src/native/shm/waiter.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

using Clock = std::chrono::steady_clock;

bool has_rung(const detail::Doorbell& doorbell) {
    pollfd one{.fd = doorbell.fd(), .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, 0) > 0;
}

}  // namespace

TEST_CASE("a rank that rang its own doorbell without end can still wake its neighbours", "[p2p][unit]") {
    detail::Doorbell own;
    const detail::Doorbell neighbour;
    for (int i = 0; i < 5000; ++i) own.ring_own();
    own.ring(neighbour.name());
    CHECK(has_rung(neighbour));
    CHECK(has_rung(own));
    own.silence();
    CHECK_FALSE(has_rung(own));
    own.ring_own();
    CHECK(has_rung(own));
}

TEST_CASE("no ring is lost to another thread that silences the doorbell meanwhile", "[p2p][unit]") {
    detail::Doorbell doorbell;
    std::atomic<bool> stop{false};
    std::thread other([&] {
        while (!stop) doorbell.silence();
    });
    for (int i = 0; i < 20'000; ++i) doorbell.ring_own();
    stop = true;
    other.join();
    doorbell.ring_own();
    CHECK(has_rung(doorbell));
}

TEST_CASE("a thread that waits for a message which another thread has just received does not sleep", "[p2p][unit]") {
    // The group's thread receives two messages in one pass; the callback of the first blocks it before it can complete
    // the second, for which we wait.
    constexpr auto kCallback = std::chrono::milliseconds(10);
    constexpr int kRounds = 100;  // on a busy machine a woken thread may wait for a core as long
    std::atomic<bool> shown{false};
    const auto results = run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        ProcessGroup& world = context.world();
        Clock::duration least = Clock::duration::max();
        for (int round = 0; round < kRounds; ++round) {
            world.barrier().wait();
            if (shown) break;
            std::int64_t first = 0;
            std::int64_t second = 0;
            if (world.rank() == 1) {
                world.barrier().wait();
                TransferBatch batch = world.batch();
                batch.send(first, 0, 1).send(second, 0, 2).start().wait();
                continue;
            }
            std::promise<void> received;
            std::promise<Clock::time_point> ended;
            Work one = world.recv(first, 1, 1);
            Work other = world.recv(second, 1, 2);
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
            shown = least < detail::Waiter::kNap / 2;
        }
        return least;
    });
    CHECK(shown);
}

TEST_CASE("callbacks of transfers may start others", "[p2p][unit]") {
    const auto results = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        ProcessGroup& world = context.world();
        std::int64_t first = world.rank();
        std::int64_t second = -1;
        if (world.rank() == 0) {
            world.send(first, 1).wait();
            world.recv(second, 1).wait();
        } else {
            std::promise<Work> answered;
            world.recv(first, 0).then(
                [&](const std::exception_ptr&) { answered.set_value(world.send(Buffer(second = first + 7), 0)); });
            answered.get_future().get().wait();
        }
        return second;
    });
    CHECK(results == std::vector<std::int64_t>{7, 7});
}

TEST_CASE("a callback may start a transfer while another one is being submitted", "[p2p][unit]") {
    // In threads of their own, so that one that hangs does not block the program.
    std::packaged_task<std::vector<std::int64_t>()> task([] {
        return run_ranks({.ranks_per_node = {2}}, [](Context& context) {
            ProcessGroup& world = context.world();
            std::int64_t right = 0;
            for (std::int64_t round = 0; round < 200; ++round) {
                std::int64_t first = round;
                std::int64_t second = -1;
                if (world.rank() == 0) {
                    world.barrier().wait();
                    TransferBatch both = world.batch();
                    both.send(first, 1, 1).send(first, 1, 2).start().wait();
                    world.recv(second, 1).wait();
                    right += second == round + 7 ? 1 : 0;
                } else {
                    std::promise<Work> answered;
                    std::int64_t answer = 0;
                    Work asked = world.recv(second, 0, 1);
                    asked.then([&](const std::exception_ptr&) {
                        answered.set_value(world.send(Buffer(answer = second + 7), 0));
                    });
                    world.barrier().wait();
                    world.recv(first, 0, 2).wait();
                    answered.get_future().get().wait();
                    right += first == round ? 1 : 0;
                }
            }
            return right;
        });
    });
    auto results = task.get_future();
    std::thread(std::move(task)).detach();
    REQUIRE(results.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
    CHECK(results.get() == std::vector<std::int64_t>{200, 200});
}

TEST_CASE("threads that wait for different transfers all finish", "[p2p][unit]") {
    const auto results = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        ProcessGroup& world = context.world();
        constexpr int kThreads = 4;
        constexpr int kRounds = 200;
        std::vector<std::thread> threads;
        std::vector<int> wrong(kThreads);
        for (int t = 0; t < kThreads; ++t) {
            threads.emplace_back([&world, &wrong, t] {
                for (int i = 0; i < kRounds; ++i) {
                    std::int64_t value = world.rank() == 0 ? i : -1;
                    if (world.rank() == 0) {
                        world.send(value, 1, t).wait();
                        world.recv(value, 1, t).wait();
                        wrong[static_cast<std::size_t>(t)] += value != i + 1;
                    } else {
                        world.recv(value, 0, t).wait();
                        ++value;
                        world.send(value, 0, t).wait();
                    }
                }
            });
        }
        for (auto& thread : threads) thread.join();
        return wrong;
    });
    CHECK(results[0] == std::vector<int>(4));
}
