#pragma once
// StallWatch: notices that a worker is in one operation for too long. Pure: boards in, reports out.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>

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

    /// The operation that a worker has been in for longer, once for each. `generation` is left to the caller.
    [[nodiscard]] std::optional<coordinator::Stalled> look(Rank rank, const coordinator::BoardView& view);
    /// Another worker group begins.
    void reset() { told_.clear(); }

private:
    const std::chrono::nanoseconds warning_;
    std::map<Rank, std::uint64_t> told_;  ///< the operation by its number on the board
};

}  // namespace ddprun::agent
