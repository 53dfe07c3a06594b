// Addresses by a deadline, whatever the name servers do.
#include "common/system/resolve.hpp"

#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/catch.hpp"

using namespace ddprun;
using namespace std::chrono_literals;

TEST_CASE("resolve: a name server that does not answer is an error at the deadline, and may answer afterwards") {
    std::promise<void> hangs;
    auto held = std::make_shared<int>();  // by the look-up, which its thread destroys at its end
    const std::weak_ptr<int> asked = held;
    LookUp hanging = [wait = hangs.get_future().share(), held = std::move(held)](const Endpoint&) {
        wait.wait();
        return Result<Addresses>(Addresses{});
    };
    const TimePoint begun = Clock::now();
    const auto addresses = resolve(Endpoint{"store.example", 1}, begun + 300ms, std::move(hanging));
    REQUIRE_FALSE(addresses.has_value());
    CHECK(addresses.error().code == Errc::kNotFound);
    CHECK(addresses.error().message == "no name server has answered for 'store.example'");
    CHECK(Clock::now() - begun < 10s);
    hangs.set_value();  // a late answer does no harm
    while (!asked.expired() && Clock::now() - begun < 20s) std::this_thread::yield();
    CHECK(asked.expired());
}

TEST_CASE("resolve: numeric addresses ask no name server, names have a moment even when the deadline has passed") {
    const LookUp never = [](const Endpoint&) -> Result<Addresses> { std::abort(); };
    CHECK(resolve(Endpoint{"127.0.0.1", 1}, Clock::now(), never).value().size() == 1);
    CHECK(resolve(Endpoint{"::1", 1}, Clock::now(), never).value().front().bytes.ss_family == AF_INET6);
    CHECK_FALSE(resolve(Endpoint{"localhost", 1}, Clock::now()).value().empty());
}

TEST_CASE("resolve: the system knows localhost, and no label of 70 bytes") {
    const auto addresses = ask_system({"localhost", 4711});
    REQUIRE(addresses.has_value());
    REQUIRE_FALSE(addresses->empty());
    CHECK(addresses->front().size > 0);
    const std::string impossible(70, 'x');  // a label has at most 63 bytes: no name server is asked
    const auto unknown = ask_system({impossible, 1});
    REQUIRE_FALSE(unknown.has_value());
    CHECK_THAT(unknown.error().message, Catch::StartsWith("host '" + impossible + "' is unknown ("));
}
