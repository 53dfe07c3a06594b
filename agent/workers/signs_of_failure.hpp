#pragma once
// Reads from a flight record whether its worker is ending by itself. Pure; used by Worker.

#include <chrono>
#include <cstddef>
#include <optional>

#include "common/clock.hpp"
#include "rendezvous/protocol/flight_record.hpp"

namespace ddprun::agent {

/// An older sign of failure is about a failure that the program survived.
inline constexpr std::chrono::seconds kRecentSign{10};

/// Returns the age of the first sign of failure since an operation last succeeded: the program aborted a group, left
/// one by an exception, or got a message that did not fit. It survived earlier signs. Empty: there is none.
[[nodiscard]] std::optional<Duration> failing_for(const protocol::FlightRecord& record);

/// Returns whether the program has left all its groups, and the last of them recently.
[[nodiscard]] bool has_left_all_groups(const protocol::FlightRecord& record);

}  // namespace ddprun::agent
