#pragma once
// PeerWait: waits until every rank of a node has reached some state, and names the culprits if that takes too long.
// Used by the thread that runs the group's operations.

#include <functional>

#include "worker_lib/src/native/node/node_failure.hpp"
#include "worker_lib/src/native/node/node_progress.hpp"
#include "worker_lib/src/native/node/node_ranks.hpp"
#include "worker_lib/src/native/node/silence.hpp"

namespace ddp::detail {

class PeerWait {
public:
    PeerWait(const NodeRanks& ranks, NodeProgress& progress, const NodeFailure& failure)
        : ranks_(ranks), progress_(progress), failure_(failure) {}

    /// Returns when `arrived(index)` is true for every rank. A peer must store the value that arrived() reads before it
    /// calls wake_all(). Once true, arrived() stays true or no longer matters. Throws Timeout or PeerLost with the
    /// culprits, or the failure that ends `operation`. It gives up at the times of deadlines.hpp.
    template <typename HasArrived>
    void until_all(const Operation& operation, HasArrived arrived) const {
        int next = 0;  // all before it have arrived
        const auto all_arrived = [&] {
            while (next < ranks_.size() && arrived(next)) ++next;
            return next == ranks_.size();
        };
        Silence silence;
        ranks_.waiter().wait([&] { return all_arrived() || failure_.ends(operation); },
                             [&] { return ranks_.needs_this_core(next, arrived); },
                             [&] { check(operation, silence, [&](int i) { return arrived(i); }); });
        // If all have arrived, the failure concerns a later operation. Called once more, because the last rank may have
        // arrived and failed between the look at it and the look at the failure.
        if (!all_arrived()) failure_.check(operation);
    }

    /// Returns whether all ranks arrive within a moment: see Waiter::glance().
    template <typename HasArrived>
    [[nodiscard]] bool all_soon(HasArrived arrived) const {
        int next = 0;  // all before it have arrived
        const auto all_arrived = [&] {
            while (next < ranks_.size() && arrived(next)) ++next;
            return next == ranks_.size();
        };
        return ranks_.waiter().glance(all_arrived, [&] { return ranks_.needs_this_core(next, arrived); });
    }

    /// Throws as until_all() if a rank has given up. Call it between reading announcements of peers and showing the
    /// result to other nodes, whose ranks learn of a failure here only later.
    void check_read(const Operation& operation) const {
        if (ranks_.size() > 1 && failure_.any_gives_up(operation)) await_failure(operation);
    }
    /// Throws the failure that made a rank give up, as soon as it is known.
    void await_failure(const Operation& operation) const;

private:
    void check(const Operation& operation, Silence& silence, const std::function<bool(int index)>& arrived) const;

    const NodeRanks& ranks_;
    NodeProgress& progress_;
    const NodeFailure& failure_;
};

}  // namespace ddp::detail
