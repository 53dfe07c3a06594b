// What the marks of waiting on a board add up to.
#include <algorithm>
#include <compare>
#include <map>

#include "rendezvous/coordinator/messages_board.hpp"

namespace ddprun::coordinator {

void pass_waits_on(BoardView& view) {
    struct Wait {
        bool blocks = false;
        std::chrono::nanoseconds time{0};
        auto operator<=>(const Wait&) const = default;
    };
    std::map<int, Wait> by_group;  ///< of those that come later
    for (auto operation = view.operations.rbegin(); operation != view.operations.rend(); ++operation) {
        if (operation->p2p_seq != 0 || operation->ended_ago || operation->group < 0) continue;
        auto [known, is_new] = by_group.try_emplace(operation->group);
        Wait& wait = known->second;
        if (operation->waited_ago) {
            const Wait own{!operation->polled, *operation->waited_ago};
            wait = is_new ? own : std::max(wait, own);
        } else if (is_new) {
            by_group.erase(known);
            continue;
        }
        operation->waited_ago = wait.time;
        operation->polled = !wait.blocks;
    }
}

bool is_going_on(const BoardView& view, std::chrono::nanoseconds time) {
    return std::ranges::any_of(view.operations,
                               [&](const BoardOperation& o) { return o.queued_ago < time && !is_arrival(o); });
}

std::optional<std::chrono::nanoseconds> waits_for(const BoardOperation& operation, bool going_on) {
    if (operation.ended_ago || !operation.waited_ago || (operation.polled && going_on)) return std::nullopt;
    return std::min(*operation.waited_ago, operation.started_ago.value_or(std::chrono::nanoseconds(0)));
}

}  // namespace ddprun::coordinator
