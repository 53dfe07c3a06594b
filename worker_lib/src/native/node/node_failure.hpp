#pragma once
// NodeFailure: whether the group has failed on this node, why, and from which operation on. A failure is noted in the
// control page of the rank that found it, and every rank's page points to the first such note. Any thread may call it.
//
// Operations up to a certain number still complete after a failure: they need nothing more of the rank that failed.

#include <atomic>
#include <cstdint>
#include <optional>

#include "common/mutex.hpp"
#include "worker_lib/src/native/node/node_ranks.hpp"
#include "worker_lib/src/native/protocol/failure_note.hpp"
#include "worker_lib/src/operation/operation.hpp"

namespace ddp::detail {

class NodeFailure {
public:
    explicit NodeFailure(const NodeRanks& ranks) : ranks_(ranks) {}

    /// Makes the group unusable on this node: every wait in an operation later than number `after` ends with `failure`.
    /// If there are several failures, the first one and the lowest number count.
    void poison(const Failure& failure, std::uint64_t after = 0);
    /// Ends the own rank's waits only, in operations that it has not completed. Peers learn of it when it leaves.
    void stop(const Failure& failure);
    /// Returns whether stop() came before any failure of the group.
    [[nodiscard]] bool stopped() const { return stopped_; }
    /// Reports the failure to every rank, unless it is stop()'s: the rank that found it may have died before it had
    /// reached all. The own rank takes part in no operation later than `after`. Call it before work fails with it.
    void propagate(std::uint64_t after) const;

    [[nodiscard]] bool poisoned() const { return ranks_.own().poisoned_by.load(std::memory_order_seq_cst) != 0; }
    /// Returns the number of the last operation that still completes; kAllValid without a failure.
    [[nodiscard]] std::uint64_t valid_through() const {
        return ranks_.own().valid_through.load(std::memory_order_seq_cst);
    }
    /// Returns whether the failure ends `operation`.
    [[nodiscard]] bool ends(const Operation& operation) const { return valid_through() < operation.seq; }
    /// Throws FailureError if the failure ends `operation`.
    void check(const Operation& operation) const {
        if (ends(operation)) check_any(operation);
    }
    /// Throws the failure, even if it ends only later operations. Call it for an operation that needs a rank that is
    /// gone: that failure may be the reason.
    void check_any(const Operation& operation) const;

    /// Returns whether the rank at `index` takes no further part in `operation`, because it failed or because it
    /// leaves.
    [[nodiscard]] bool gives_up(int index, const Operation& operation) const {
        return ranks_.control(index).valid_through.load(std::memory_order_relaxed) < operation.seq;
    }
    /// Returns whether any rank has given up. The program of such a rank may have got its buffers back, and have
    /// written to them before they were read here. So call it after reading, and before any peer can take the own part
    /// for done.
    [[nodiscard]] bool any_gives_up(const Operation& operation) const;

    /// Return the failure, if there is one: as this rank sees it, and as ranks of other nodes do.
    [[nodiscard]] std::optional<Failure> for_this_rank() const;
    [[nodiscard]] std::optional<Failure> for_other_nodes() const;
    /// Returns the latter if another rank found the failure.
    [[nodiscard]] std::optional<Failure> found_by_others() const;

private:
    enum class Recipients : std::uint8_t { kAll, kOwnRank };

    void give_up(const Failure& failure, Recipients recipients, std::uint64_t after);
    void note(const Failure& failure, Recipients recipients);
    void mark(int index, int author, std::uint64_t after) const;
    [[nodiscard]] std::optional<int> author() const;
    [[nodiscard]] Failure noted_by(int index) const;

    const NodeRanks& ranks_;
    ddprun::Mutex mutex_;
    bool noted_ GUARDED_BY(mutex_) = false;
    std::atomic<bool> stopped_{false};
};

}  // namespace ddp::detail
