// The writer of the flight record goes on after a store that was interrupted.
#include "worker_lib/src/recorder/flight_recorder.hpp"

#include <limits>
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

TEST_CASE("a phase that the library sets does not replace the program's", "[worker_lib]") {
    const auto memory = std::make_unique<layout::Memory>();
    FlightRecorder recorder(*memory);
    const auto shown = [&] {
        layout::Phase phase;
        return memory->phase.load(phase) ? std::string(phase.text.data()) : "no phase";
    };
    recorder.set_default_phase("forward of unit 1");
    CHECK(shown() == "forward of unit 1");
    recorder.set_default_phase("");
    CHECK(shown().empty());
    recorder.set_phase("training");
    recorder.set_default_phase("forward of unit 2");
    CHECK(shown() == "training");
}

TEST_CASE("the times of the first step and of the first new one are kept", "[worker_lib]") {
    const auto memory = std::make_unique<layout::Memory>();
    FlightRecorder recorder(*memory);
    const layout::Steps& steps = memory->steps;
    memory->steps.begun_before = 12;  // an earlier group had begun step 11
    recorder.set_step(10);
    CHECK(steps.begun == 11);
    const std::int64_t first_at = steps.first_at;
    CHECK(first_at > 0);
    recorder.set_step(11);  // it may not have been finished
    CHECK(steps.new_at == 0);
    recorder.set_step(12);
    const std::int64_t new_at = steps.new_at;
    CHECK(new_at >= first_at);
    recorder.set_step(13);
    recorder.set_step(3);
    CHECK(steps.begun == 14);
    CHECK(steps.first_at == first_at);
    CHECK(steps.new_at == new_at);
}

TEST_CASE("steps may be counted from 0, and a number without a successor is ignored", "[worker_lib]") {
    const auto memory = std::make_unique<layout::Memory>();
    FlightRecorder recorder(*memory);
    recorder.set_step(std::numeric_limits<std::uint64_t>::max());
    CHECK(memory->steps.first_at == 0);
    CHECK(memory->steps.new_at == 0);
    recorder.set_step(0);
    CHECK(memory->steps.begun == 1);
    CHECK(memory->steps.first_at > 0);
    CHECK(memory->steps.new_at > 0);
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
