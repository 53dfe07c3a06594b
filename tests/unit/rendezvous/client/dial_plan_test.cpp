// The decisions of dial() between two tries.
#include "rendezvous/client/dial_plan.hpp"

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::client;
using namespace std::chrono_literals;

namespace {

using Next = DialPlan::Next;

constexpr TimePoint kStart{100s};
const Error kTimedOut{Errc::kTimeout, "timed out"};
const Error kRefusedByHost{make_error_code(boost::system::errc::connection_refused), "connection refused"};

}  // namespace

TEST_CASE("each try takes twice as long as the one before, and so does each pause", "[client]") {
    DialPlan plan(kStart + 60s, {.max_pause = 100ms, .try_time = 1500ms, .first_try_time = 100ms});
    for (const auto expected : {100ms, 200ms, 400ms, 800ms, 1500ms, 1500ms}) CHECK(plan.begin_try(kStart) == expected);
    for (const auto expected : {50ms, 100ms, 100ms}) CHECK(plan.next_pause() == expected);
    CHECK(plan.tries() == 6);
}

TEST_CASE("no try begins after the deadline", "[client]") {
    DialPlan plan(kStart + 1s, {});
    plan.begin_try(kStart);
    CHECK(plan.failed(kRefusedByHost, kStart + 900ms) == Next::kTryAgain);
    CHECK(plan.failed(kRefusedByHost, kStart + 950ms) == Next::kGiveUp);
}

TEST_CASE("a refused connection is the end of a daemon that ran, from some time on", "[client]") {
    DialPlan plan(kStart + 60s, {.refused_until = kStart + 3s});
    plan.begin_try(kStart);
    CHECK(plan.failed(kRefusedByHost, kStart + 2s) == Next::kTryAgain);
    CHECK(plan.failed(kTimedOut, kStart + 4s) == Next::kTryAgain);
    CHECK(plan.failed(kRefusedByHost, kStart + 4s) == Next::kGiveUp);
}

TEST_CASE("a refusal at one address of a name does not hide a server that is silent at another one", "[client]") {
    const Error silent{GENERATE(Errc::kTimeout, Errc::kClosed), "no answer"};
    CHECK(DialPlan::error_of_try(silent, kRefusedByHost).code == silent.code);
    CHECK(DialPlan::error_of_try(kRefusedByHost, silent).code == silent.code);
    const Error no_route{make_error_code(boost::system::errc::network_unreachable), "no route"};
    CHECK(DialPlan::error_of_try(no_route, kRefusedByHost).code == kRefusedByHost.code);
    const Error foreign{Errc::kRefused, "another server"};
    CHECK(DialPlan::error_of_try(foreign, kTimedOut).code == foreign.code);
}

TEST_CASE("a server that is not our daemon ends the tries", "[client]") {
    const Errc code = GENERATE(Errc::kRefused, Errc::kMismatch, Errc::kInUse, Errc::kUntrusted);
    DialPlan plan(kStart + 60s, {});
    plan.begin_try(kStart);
    CHECK(plan.failed({code, "another server"}, kStart) == Next::kForeign);
}

TEST_CASE("a last try that had little time says nothing about the host", "[client]") {
    DialPlan plan(kStart + 2s, {});
    plan.begin_try(kStart);
    CHECK(plan.failed(kRefusedByHost, kStart) == Next::kTryAgain);
    plan.begin_try(kStart + 1500ms);
    CHECK(plan.failed(kTimedOut, kStart + 2s) == Next::kGiveUp);
    CHECK(plan.cause().code == kRefusedByHost.code);
}
