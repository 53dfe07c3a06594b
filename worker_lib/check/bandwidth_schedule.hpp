#pragma once
// The pairs of nodes that exchange messages in each round: a round-robin tournament by the circle method, in which all
// pairs of a round exchange at once. Pure.

#include <optional>
#include <vector>

namespace ddp::check {

/// Returns the number of rounds after which each of `nodes` has met every other one.
[[nodiscard]] int complete_rounds(int nodes);

/// Returns the rounds to play: all of them for up to kMaxCompleteNodes nodes, else kPartialRounds that are spread over
/// them, so that the check of a large job takes no longer.
[[nodiscard]] std::vector<int> rounds_of(int nodes);
inline constexpr int kMaxCompleteNodes = 32;
inline constexpr int kPartialRounds = 16;

/// Returns the partner of `node` in `round`; nullopt: it has none, because the number of nodes is odd.
[[nodiscard]] std::optional<int> partner_of(int node, int nodes, int round);

}  // namespace ddp::check
