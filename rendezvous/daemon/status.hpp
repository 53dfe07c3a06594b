#pragma once
// Describes the job for `ddpctl status`. Pure.

#include "common/clock.hpp"
#include "rendezvous/daemon/decisions.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::daemon {

[[nodiscard]] protocol::Status status_of(const Decisions& decisions, TimePoint now);
/// Returns the same without the decisions.
[[nodiscard]] protocol::Status status_of(const coordinator::State& state, TimePoint now);

}  // namespace ddprun::daemon
