#pragma once
// NodeBarrier: the barriers inside an operation, after the ranks of a node have met. A counting barrier: each rank
// publishes at how many barriers it has arrived, and waits until every other count has reached its own. Used by the
// thread that runs the group's operations.

#include <cstdint>

#include "worker_lib/src/native/node/peer_wait.hpp"

namespace ddp::detail {

class NodeBarrier {
public:
    NodeBarrier(const NodeRanks& ranks, const PeerWait& wait) : ranks_(ranks), wait_(wait) {}

    /// Returns when all ranks of the node have arrived. Throws as PeerWait::until_all(), also if a rank has given up
    /// before this one arrived: see PeerWait::check_read().
    void arrive_and_wait(const Operation& operation) {
        wait_.check_read(operation);
        arrive();
        wait(operation);
    }
    void arrive() {
        ++arrived_;
        ranks_.publish_core();
        ranks_.own().arrived.store(arrived_, std::memory_order_release);
        ranks_.wake_all();
    }
    /// Returns whether all ranks arrive within a moment. After arrive().
    [[nodiscard]] bool try_wait() const {
        return wait_.all_soon([this](int i) { return has_arrived(i); });
    }
    /// Returns when all ranks have arrived. After arrive().
    void wait(const Operation& operation) const {
        wait_.until_all(operation, [this](int i) { return has_arrived(i); });
    }

private:
    [[nodiscard]] bool has_arrived(int index) const {
        return ranks_.control(index).arrived.load(std::memory_order_acquire) >= arrived_;
    }

    const NodeRanks& ranks_;
    const PeerWait& wait_;
    std::uint64_t arrived_ = 0;  ///< number of barriers at which this rank has arrived
};

}  // namespace ddp::detail
