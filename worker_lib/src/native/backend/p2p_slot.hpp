#pragma once
// P2pSlot: owns the P2p of one group on the native backend. With several nodes it is made with the group, because peers
// may send before this rank does anything. With one node it is made by the first send or receive, because most groups
// have none.

#include <atomic>
#include <functional>
#include <memory>
#include <string_view>

#include "worker_lib/src/native/backend/connected_peers.hpp"
#include "worker_lib/src/native/p2p/p2p.hpp"

namespace ddp::detail {

class P2pSlot {
public:
    using OnFailure = std::function<void(const Failure&)>;
    using OnThrown = std::function<void(const WorkState&, std::string_view)>;

    /// peers        outlives the works of the group; on_failure and on_thrown outlive P2p::stop()
    /// on_failure   P2pSetup::on_failure
    /// on_thrown    P2pSetup::on_thrown
    P2pSlot(ConnectedPeers& peers, OnFailure on_failure, OnThrown on_thrown)
        : peers_(peers), on_failure_(std::move(on_failure)), on_thrown_(std::move(on_thrown)) {}

    /// Makes the P2p. One thread at a time, once.
    P2p& make(const GroupKey& key, ddprun::UniqueFd listener);
    /// Returns null before make(). Any thread.
    [[nodiscard]] P2p* get() const { return current_.load(std::memory_order_seq_cst); }
    /// Wakes the threads that sleep in the P2p, so that they see the failure of the group. One that is made later sees
    /// it by itself.
    void interrupt() const {
        if (P2p* const p2p = get()) p2p->interrupt();
    }

private:
    ConnectedPeers& peers_;
    const OnFailure on_failure_;
    const OnThrown on_thrown_;
    std::shared_ptr<P2p> p2p_;  ///< shared with its works, which may outlive the group
    std::atomic<P2p*> current_{nullptr};
};

}  // namespace ddp::detail
