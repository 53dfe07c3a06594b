#pragma once
// Reads the memory of a flight record into plain values. Pure.

#include <cstddef>

#include "common/clock.hpp"
#include "common/flight_record_layout.hpp"
#include "rendezvous/protocol/flight_record.hpp"

namespace ddprun::agent {

/// Returns a flight record as plain values. Nothing in `record` is trusted, because a faulty process may have written
/// anything into it: values out of range are left out. `now`: of this machine's clock.
[[nodiscard]] protocol::FlightRecord read_flight_record(const flight_record::Memory& record, TimePoint now,
                                                        std::size_t max_operations);

}  // namespace ddprun::agent
