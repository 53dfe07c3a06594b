#pragma once
// The rounds in which the ranks of a world meet. A value that a rank publishes in a round is read in that round only
// (group_key()), so that no value of a failed attempt is taken for one of the next.
//
// A rank that makes a Context joins the first undecided round. The round is met when all ranks have joined and then, as
// the process of a rank that joined may have ended since, have reported that they are ready. A rank that gives up
// closes the round. The others go on to the next one, where ranks that try again find them.

#include <cstdint>

#include "worker_lib/src/bootstrap/group_spec.hpp"

namespace ddp::detail {

/// Returns the number of the round in which all ranks of the world met, from 1; collective over these ranks.
/// `world.init` is ignored. Waits for InitOptions::init_timeout at most (`world.init_timeout`). Throws Error{Timeout}
/// naming the ranks that never joined, and Error{Environment} if another process keeps joining as the same rank.
[[nodiscard]] std::int64_t meet_in_round(const GroupSpec& world);

}  // namespace ddp::detail
