#pragma once
// NodeProgress: the position of each rank of a node in its sequence of operations, and whether it is present. The own
// rank publishes its state, and any thread may read that of the others. begin(), finish(), look() and the deadline
// belong to the thread that runs the group's operations.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "common/clock.hpp"
#include "worker_lib/src/group/departure.hpp"
#include "worker_lib/src/native/node/node_ranks.hpp"
#include "worker_lib/src/native/protocol/pauses.hpp"
#include "worker_lib/src/operation/operation.hpp"

namespace ddp::detail {

/// A rank that takes part in no further operation.
struct Absence {
    std::optional<std::uint64_t> after;  ///< the last operation that it completed; nothing: unknown
    Failure failure;                     ///< describes the departure
    Departure how = Departure::kEnded;
};

class NodeProgress {
public:
    explicit NodeProgress(const NodeRanks& ranks) : ranks_(ranks) {}

    /// Publishes that the own rank begins `operation`, and takes over its deadline.
    void begin(const Operation& operation) {
        called_ = operation.deadline - operation.timeout;
        deadline_ = operation.deadline;
        pauses_.begin(called_, ddprun::last_tick());
        ranks_.own().begun.store(operation.seq, std::memory_order_release);
    }
    /// Publishes that the own rank has completed `operation`.
    void finish(const Operation& operation) { ranks_.own().done.store(operation.seq, std::memory_order_release); }
    /// Returns the number of the last operation that the own rank has completed.
    [[nodiscard]] std::uint64_t last_done() const { return ranks_.own().done.load(std::memory_order_acquire); }

    /// Returns the deadline of the current operation. Once the ranks of the node have met, it is the earliest of
    /// theirs, so that no rank gives up because of one that may still wait.
    [[nodiscard]] ddprun::TimePoint deadline() const { return deadline_; }
    /// Returns the time, `extra` after the deadline, at which this rank gives up. Its pauses move that.
    [[nodiscard]] ddprun::TimePoint limit(ddprun::Duration extra = {}) const {
        return pauses_.limit(deadline_, extra, called_);
    }
    /// Takes over an earlier deadline of a neighbour. One that passed before the own call does not count: the neighbour
    /// has paused, and its deadline has moved.
    void lower_deadline(ddprun::TimePoint deadline) {
        if (deadline > called_) deadline_ = std::min(deadline_, deadline);
    }
    /// Notes that the own rank looks at others. Returns Pauses::look(). Every wait calls it, much more often than every
    /// kSilence / 2.
    ddprun::Duration look(ddprun::TimePoint now) { return pauses_.look(now); }

    /// Signals that the own rank waits for messages of other nodes, and so is no culprit. Call it several times within
    /// kSilence.
    void signal_listening() const;
    /// Signals that the own rank waits for any peer. Peers that wait for its sends and receives look at this.
    void signal_waiting() const;

    /// Publishes that the own rank takes part in no further operation.
    void leave(Departure how);
    /// Returns how and after which operation the rank at `index` left or ended; nothing if it is present.
    [[nodiscard]] std::optional<Absence> absence(int index) const;
    /// Returns the departure that peers see if the own rank leaves now.
    [[nodiscard]] Absence own_absence(Departure how) const;

    /// The last operation that a rank has begun, and the last that it has completed.
    struct OperationsOf {
        std::uint64_t begun = 0;
        std::uint64_t done = 0;
    };
    [[nodiscard]] OperationsOf of(int index) const {
        const std::uint64_t done = ranks_.control(index).done.load(std::memory_order_acquire);
        return {ranks_.control(index).begun.load(std::memory_order_acquire), done};
    }
    /// Returns whether a rank of the node has begun an operation later than number `seq`.
    [[nodiscard]] bool any_beyond(std::uint64_t seq) const;
    /// Returns whether a rank of the node, which may be the own one, has begun a collective and not completed it.
    [[nodiscard]] bool any_busy() const;

private:
    const NodeRanks& ranks_;
    ddprun::TimePoint called_;  ///< when the current operation was called
    ddprun::TimePoint deadline_;
    Pauses pauses_;
};

}  // namespace ddp::detail
