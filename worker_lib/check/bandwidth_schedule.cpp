#include "worker_lib/check/bandwidth_schedule.hpp"

namespace ddp::check {

int complete_rounds(int nodes) { return nodes < 2 ? 0 : nodes + nodes % 2 - 1; }

std::vector<int> rounds_of(int nodes) {
    const int all = complete_rounds(nodes);
    const int played = nodes > kMaxCompleteNodes ? kPartialRounds : all;
    std::vector<int> rounds;
    for (int i = 0; i < played; ++i) rounds.push_back(i * all / played);
    return rounds;
}

// The last of an even number of players keeps its seat, and the others move on around a circle: in round r two of them
// meet if their sum is 2r, modulo their number. The one that would meet itself meets the last player.
std::optional<int> partner_of(int node, int nodes, int round) {
    const int circle = complete_rounds(nodes);
    if (circle == 0) return std::nullopt;
    int partner = node == circle ? round : (2 * round - node + 2 * circle) % circle;
    if (partner == node) partner = circle;
    return partner < nodes ? std::optional(partner) : std::nullopt;
}

}  // namespace ddp::check
