#pragma once
// ImmediateTransfers: carries out small messages between ranks of a node that need no Work, because the message is
// there or arrives within a moment. The caller's thread writes and reads the rings itself. Nothing is allocated, and
// nothing fails: a transfer that cannot be done in this way is submitted.
//
// No message may overtake another. So every submitted work must have been started, no frame may wait in the peer's
// outbox, and no work may be in flight when a message is received.
//
// P2p owns it. open(), finish() and P2p::submit() are called under the lock of the group that numbers the batches.
// Therefore a work that is submitted while we hold `running` was submitted before we looked: no thread leaves its work
// to us, and we need not look for one when we release the lock.

#include <cstdint>
#include <mutex>
#include <utility>

#include "worker_lib/src/native/p2p/peers.hpp"
#include "worker_lib/src/native/p2p/progress_engine.hpp"
#include "worker_lib/src/native/p2p/scheduler.hpp"
#include "worker_lib/src/native/p2p/sleeper.hpp"
#include "worker_lib/src/native/p2p/work_table.hpp"
#include "worker_lib/src/native/shm/node.hpp"
#include "worker_lib/src/operation/transfer.hpp"
#include "worker_lib/src/tuning/light_mutex.hpp"

namespace ddp::detail::p2p {

class ImmediateTransfers {
public:
    ImmediateTransfers(const Node& node, Peers& peers, const WorkTable& works, const ProgressEngine& engine,
                       const Sleeper& sleeper, Scheduler& scheduler, int pauses)
        : node_(node),
          peers_(peers),
          works_(works),
          engine_(engine),
          sleeper_(sleeper),
          scheduler_(scheduler),
          pauses_(pauses) {}

    static constexpr std::size_t kMaxTransfers = 8;
    /// Sends as much as can be sent now. Returns false if nothing has happened. Otherwise finish() has to follow, and
    /// the lock is held until then.
    [[nodiscard]] bool open(const TransferBatch& batch) noexcept;
    /// Receives the messages that arrive within a moment, and releases the lock. Returns true if the whole batch is
    /// done. Otherwise the rest has to be submitted.
    [[nodiscard]] bool finish(const TransferBatch& batch) noexcept;
    /// Returns whether a transfer of a batch that has to be submitted is done.
    [[nodiscard]] bool any_done() const { return done_ != 0; }
    /// Returns these transfers, a bit for each, and forgets them.
    [[nodiscard]] std::uint32_t take_done() { return std::exchange(done_, 0); }

private:
    [[nodiscard]] bool receive(Neighbour& from, const Transfer& transfer) noexcept;

    const Node& node_;
    Peers& peers_;
    const WorkTable& works_;
    const ProgressEngine& engine_;
    const Sleeper& sleeper_;
    Scheduler& scheduler_;
    const int pauses_;
    std::unique_lock<LightMutex> running_;  ///< from open() to finish()
    std::uint32_t done_ = 0;                ///< from open() until finish() returns true, or take_done()
    unsigned vain_ = 0;                     ///< consecutive receives that found nothing
};

}  // namespace ddp::detail::p2p
