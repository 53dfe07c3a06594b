#pragma once
// StallWatch: notices that a worker is in one operation for too long. Pure: boards in, reports out.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "common/ids.hpp"
#include "rendezvous/coordinator/messages_inspect.hpp"

namespace ddprun::agent {

class StallWatch {
public:
    /// `warning`: so long an operation may take; 0: any time.
    explicit StallWatch(std::chrono::nanoseconds warning) : warning_(warning) {}

    [[nodiscard]] bool is_on() const { return warning_.count() > 0; }
    /// How often to look.
    [[nodiscard]] std::chrono::nanoseconds interval() const;

    /// What a worker has been in for longer and has not been told(): of several the oldest. Or what has just failed by
    /// its deadline, whatever `warning` is. `generation` is left to the caller.
    [[nodiscard]] std::optional<coordinator::Stalled> look(Rank rank, const coordinator::BoardView& view) const;
    /// The daemon knows that the worker stands still in what `view` shows; it will look at all of it.
    void told(Rank rank, const coordinator::BoardView& view);
    /// Another worker group begins.
    void reset() { told_.clear(); }

private:
    /// For how long it has waited for that, if for too long.
    [[nodiscard]] std::optional<std::chrono::nanoseconds> stuck_for(const coordinator::BoardOperation& operation,
                                                                    bool going_on) const;

    const std::chrono::nanoseconds warning_;
    std::map<Rank, std::set<std::uint64_t>> told_;  ///< operations by their numbers on the board
};

}  // namespace ddprun::agent
