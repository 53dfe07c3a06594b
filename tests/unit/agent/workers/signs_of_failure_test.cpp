// failing_for(): which operations show that the program survived a sign of failure.

#include "agent/workers/signs_of_failure.hpp"

#include "tests/catch.hpp"

using namespace ddprun;
using namespace std::chrono_literals;
using protocol::FlightRecord;
using protocol::RecordedOperation;

namespace {

/// A program that called operation 3, then left a group by an exception, 5 ms ago.
FlightRecord left_after_3(RecordedOperation operation) {
    FlightRecord record;
    protocol::RecordedGroup& group = record.groups.emplace_back();
    group.left_ago = 5ms;
    group.left_after = 3;
    group.left_by_exception = true;
    record.operations.push_back(std::move(operation));
    return record;
}

}  // namespace

TEST_CASE("a program is failing since a sign that no later success followed", "[agent]") {
    CHECK(agent::failing_for(left_after_3({})) == Duration(5ms));
    CHECK(agent::failing_for(left_after_3({.id = 3, .ended_ago = 8ms})) == Duration(5ms));
    CHECK(agent::failing_for(left_after_3({.id = 4, .ended_ago = 2ms, .failed = true})) == Duration(5ms));
    CHECK_FALSE(agent::failing_for(left_after_3({.id = 3, .ended_ago = 2ms})));  // it was in flight
}

TEST_CASE("an operation that was called after a sign survived it, though a tick makes its end look earlier",
          "[agent]") {
    CHECK_FALSE(agent::failing_for(left_after_3({.id = 4, .ended_ago = 8ms})));
    FlightRecord record;
    protocol::RecordedGroup& group = record.groups.emplace_back();
    group.aborted_ago = 5ms;
    group.aborted_after = 3;
    record.operations = {{.id = 4, .ended_ago = 8ms}};
    CHECK_FALSE(agent::failing_for(record));
    record.operations = {{.id = 3, .ended_ago = 8ms}};
    CHECK(agent::failing_for(record) == Duration(5ms));
}
