#pragma once
// Maps the memory of a flight record, which the agent made and passes as a descriptor.

#include <string>

#include "common/flight_record_layout.hpp"

namespace ddp::detail {

/// Maps the flight record behind `descriptor`, and makes this process its writer. Returns null, with the reason in
/// `problem`, if it is not a flight record or another process writes it. For process_recorder() and tests.
[[nodiscard]] ddprun::flight_record::Memory* take_recorder_memory(int descriptor, std::string& problem);

}  // namespace ddp::detail
