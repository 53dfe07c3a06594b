// The writer of the flight record goes on after a store that was interrupted.
#include "worker_lib/src/recorder/flight_recorder.hpp"

#include <memory>
#include <string_view>
#include <thread>

#include "tests/catch.hpp"

using namespace ddp::detail;
namespace layout = ddprun::flight_record;

TEST_CASE("a phase and a group overwrite one whose store was interrupted", "[worker_lib]") {
    const auto memory = std::make_unique<layout::Memory>();
    FlightRecorder recorder(*memory);
    recorder.set_phase("before");
    *reinterpret_cast<std::uint64_t*>(&memory->phase) = 7;  // the version: odd while a thread stores
    layout::Phase phase;
    REQUIRE_FALSE(memory->phase.load(phase));
    recorder.set_phase("after");
    REQUIRE(memory->phase.load(phase));
    CHECK(std::string_view(phase.text.data()) == "after");
}

TEST_CASE("agree_to_stop is true in the call that the agents have agreed on, and waits for it", "[worker_lib]") {
    const auto memory = std::make_unique<layout::Memory>();
    FlightRecorder recorder(*memory);
    CHECK_FALSE(recorder.preempted());
    CHECK_FALSE(recorder.agree_to_stop());
    CHECK_FALSE(recorder.agree_to_stop());
    CHECK(memory->preemption.calls.load() == 2);
    memory->preemption.noticed.store(1);
    CHECK(recorder.preempted());
    std::jthread agent([&] {
        while (memory->preemption.calls.load() < 3) std::this_thread::yield();
        memory->preemption.stop_at.store(4);
    });
    CHECK_FALSE(recorder.agree_to_stop());  // call 3: it has waited for the agents
    CHECK(memory->preemption.stop_at.load() == 4);
    CHECK(recorder.agree_to_stop());
    CHECK(recorder.agree_to_stop());
}
