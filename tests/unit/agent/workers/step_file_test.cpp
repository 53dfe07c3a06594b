// The file into which a worker writes its steps, whatever it writes.
#include "agent/workers/step_file.hpp"

#include <fstream>
#include <string>

#include "agent/recorder/worker_flight_record.hpp"
#include "tests/catch.hpp"

using namespace ddprun::agent;

TEST_CASE("a step file has the number on its last whole line", "[agent]") {
    const auto file = StepFile::make();
    REQUIRE(file.has_value());
    CHECK(file->read() == std::nullopt);
    const auto written = [&](const std::string& text) {
        std::ofstream(file->path(), std::ios::binary) << text;
        return file->read();
    };
    CHECK(written("12\n") == 12U);
    CHECK(written("0\n") == 0U);
    CHECK(written("7\n8\n") == 8U);
    CHECK(written("7\n8\n9") == 8U);  // which is being written
    std::string many;
    for (int step = 0; step < 1000; ++step) many += std::to_string(step) + "\n";
    CHECK(written(many) == 999U);
    CHECK(written("18446744073709551615\n") == 18'446'744'073'709'551'615U);
    for (const char* const wrong : {"12", "\n", "", "-1\n", "1.5\n", "x\n", "18446744073709551616\n", " 12\n"})
        CHECK(written(wrong) == std::nullopt);
    CHECK(written(std::string(1'000'000, '1')) == std::nullopt);
}

TEST_CASE("a record has the steps that the agent notes for its worker", "[agent]") {
    auto record = WorkerFlightRecord::make();
    REQUIRE(record.has_value());
    CHECK(record->steps().latest == std::nullopt);
    record->set_steps_before(4);
    record->note_step(4);
    CHECK(record->steps().latest == 4U);
    CHECK(record->steps().first_at.has_value());
    CHECK_FALSE(record->steps().new_at.has_value());
    record->note_step(5);
    CHECK(record->steps().new_at >= record->steps().first_at);
    CHECK(record->steps().latest == 5U);
}
