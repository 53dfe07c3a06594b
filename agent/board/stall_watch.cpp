#include "agent/board/stall_watch.hpp"

#include <algorithm>
#include <utility>

namespace ddprun::agent {

std::chrono::nanoseconds StallWatch::interval() const {
    using namespace std::chrono_literals;
    return std::clamp<std::chrono::nanoseconds>(warning_ / 4, 50ms, 1s);
}

std::optional<coordinator::Stalled> StallWatch::look(Rank rank, const coordinator::BoardView& view) {
    const coordinator::BoardOperation* oldest = coordinator::in_hand(view);
    if (!is_on() || oldest == nullptr || *oldest->started_ago < warning_) return std::nullopt;
    std::uint64_t& told = told_[rank];
    if (std::exchange(told, oldest->id) == oldest->id) return std::nullopt;
    coordinator::Stalled report;
    report.rank = rank;
    if (const auto index = static_cast<std::size_t>(oldest->group); oldest->group >= 0 && index < view.groups.size())
        report.group = view.groups[index].name;
    report.seq = oldest->seq;
    report.p2p_seq = oldest->p2p_seq;
    report.waited = std::chrono::duration_cast<std::chrono::milliseconds>(*oldest->started_ago);
    return report;
}

}  // namespace ddprun::agent
