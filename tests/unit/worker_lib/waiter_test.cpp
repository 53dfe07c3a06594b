#include "worker_lib/src/native/waiter.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

using ddp::detail::Control;
using ddp::detail::Waiter;

TEST_CASE("on a busy machine a waiter looks after its deadlines in time", "[native][unit]") {
    std::atomic<bool> busy{true};
    std::vector<std::thread> others;
    for (int i = 0; i < 8 * ddp::detail::usable_cores(); ++i)
        others.emplace_back([&] {
            while (busy) {
            }
        });

    const auto own = std::make_unique<Control>();
    const auto began = std::chrono::steady_clock::now();
    struct Checked {};
    CHECK_THROWS_AS(Waiter(*own, 1).wait([] { return false; }, [] { throw Checked(); }), Checked);
    const auto waited = std::chrono::steady_clock::now() - began;
    busy = false;
    for (std::thread& other : others) other.join();
    CHECK(waited < std::chrono::seconds(1));  // 200 time slices of the others are several
}
