// Timeouts as users pass them: without end, zero, and invalid.

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

using namespace ddp;
using namespace ddp::testing;
using std::chrono::milliseconds;

namespace {

/// Returns the error of starting a world of one with these options.
std::string refusal(const InitOptions& options) {
    try {
        const Context context(Environment{}, detail::make_local_store(), options);
    } catch (const Error& error) {
        return (error.code() == ErrorCode::InvalidArgument ? "" : "wrong code: ") + std::string(error.what());
    }
    return "accepted";
}

}  // namespace

TEST_CASE("the longest timeout that can be given means no timeout", "[context][unit]") {
    const LocalWorld world{.ranks_per_node = {2, 1}, .timeout = kNoTimeout, .init_timeout = kNoTimeout};
    const auto outcomes = try_ranks(world, [](Context& context) {
        const auto group = context.world().split(0, 0, "all");
        for (ProcessGroup* each : {&context.world(), group.get()}) {
            each->barrier().wait();
            each->barrier({.timeout = kNoTimeout}).wait_host(kNoTimeout);
        }
    });
    for (const auto& outcome : outcomes) CHECK(outcome.text() == "");
}

TEST_CASE("invalid timeouts are refused by name", "[context][unit]") {
    CHECK(refusal({.backend = Backend::Native}) == "accepted");
    for (const int wrong : {0, -30'000}) {
        CHECK_THAT(refusal({.backend = Backend::Native, .timeout = milliseconds(wrong)}),
                   Catch::Contains("InitOptions::timeout is " + std::to_string(wrong) + " ms") &&
                       Catch::Contains("must be positive. Leave it out for the default"));
        CHECK_THAT(refusal({.backend = Backend::Native, .init_timeout = milliseconds(wrong)}),
                   Catch::Contains("InitOptions::init_timeout is " + std::to_string(wrong) + " ms") &&
                       Catch::Contains("must be positive"));
    }
}

TEST_CASE("an operation refuses a timeout that is not positive, and a wait a negative one", "[context][unit]") {
    Context context(Environment{}, detail::make_local_store(), {.backend = Backend::Native});
    ProcessGroup& world = context.world();
    for (const int wrong : {0, -5}) {
        const std::string shown = std::to_string(wrong) + " ms, and must be positive. ";
        CHECK_THROWS_WITH(world.barrier({.timeout = milliseconds(wrong)}),
                          Catch::Contains("OpOptions::timeout is " + shown + "Leave it out for the default"));
        CHECK_THROWS_WITH(world.monitored_barrier(milliseconds(wrong)),
                          Catch::Contains("monitored_barrier: the timeout is " + shown + "Pass none for the default"));
    }
    world.barrier().wait_host(milliseconds(0));  // it is done
    CHECK_THROWS_WITH(world.barrier().wait_host(milliseconds(-5)),
                      Catch::StartsWith("wait_host: the timeout is -5 ms, and must not be negative. Pass none"));
}

TEST_CASE("waiting for keys without a timeout waits until they exist", "[context][unit]") {
    const auto store = detail::make_local_store();
    std::thread late([&] {
        std::this_thread::sleep_for(milliseconds(50));
        store->set("key", "value");
    });
    CHECK(store->wait_for_keys({"key"}, kNoTimeout));
    CHECK(store->get_all({"key"}, kNoTimeout) == std::vector<std::string>{"value"});
    late.join();
}
