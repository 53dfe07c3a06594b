// The writer of the flight record goes on after a store that was interrupted.
#include "worker_lib/src/recorder/flight_recorder.hpp"

#include <memory>
#include <string_view>

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
