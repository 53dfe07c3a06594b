#pragma once
// ImmediateTransfers: carries out small messages between ranks of a node that need no Work, because the message is
// there or arrives within a moment. The caller's thread writes and reads the rings itself. Nothing is allocated, and
// nothing fails: a transfer that cannot be done in this way is submitted.
//
// No message may overtake another. So every submitted work must have been started, no frame may wait in the peer's
// outbox, and no work may be in flight when a message is received.
//
// P2p owns it. open(), finish() and P2p::submit() are called under the lock of the group that numbers the batches.
// Therefore a work that is submitted while we hold P2p's lock was submitted before we looked: no thread leaves its work
// to us, and we need not look for one when we release the lock.

#include <cstdint>
#include <optional>
#include <utility>

#include "worker_lib/src/native/node/node.hpp"
#include "worker_lib/src/native/p2p/peers.hpp"
#include "worker_lib/src/native/p2p/progress_engine.hpp"
#include "worker_lib/src/native/p2p/running.hpp"
#include "worker_lib/src/native/p2p/scheduler.hpp"
#include "worker_lib/src/native/p2p/sleeper.hpp"
#include "worker_lib/src/native/p2p/work.hpp"
#include "worker_lib/src/native/p2p/work_table.hpp"
#include "worker_lib/src/operation/transfer.hpp"
#include "worker_lib/src/tuning/poll_choice.hpp"

namespace ddp::detail::p2p {

class ImmediateTransfers;

/// A batch that ImmediateTransfers::open() has begun. It holds P2p's lock, so no other thread moves messages, until
/// finish() or its end. An empty one holds nothing: nothing has happened.
class [[nodiscard]] ImmediateBatch {
public:
    ImmediateBatch() = default;
    ImmediateBatch(ImmediateBatch&& other) noexcept
        : transfers_(std::exchange(other.transfers_, nullptr)), done_(other.done_) {}
    ImmediateBatch& operator=(ImmediateBatch&&) = delete;
    inline ~ImmediateBatch();

    explicit operator bool() const { return transfers_ != nullptr; }
    /// Returns the sends that have been carried out.
    [[nodiscard]] DoneTransfers done() const { return {.bits = done_}; }
    /// Receives the messages that arrive within a moment, and releases the lock. Returns the transfers of the batch
    /// that are done. If these are not all, the caller submits the rest.
    [[nodiscard]] inline DoneTransfers finish(const TransferList& batch) && noexcept
        NO_THREAD_SAFETY_ANALYSIS;  // it does not know that this object holds the lock

private:
    friend class ImmediateTransfers;
    ImmediateBatch(ImmediateTransfers& transfers, std::uint32_t done) : transfers_(&transfers), done_(done) {}

    ImmediateTransfers* transfers_ = nullptr;  ///< null: the lock is not held
    std::uint32_t done_ = 0;
};

class ImmediateTransfers {
public:
    ImmediateTransfers(const Node& node, Peers& peers, const WorkTable& works, const ProgressEngine& engine,
                       const Sleeper& sleeper, Scheduler& scheduler, int spin_pauses)
        : node_(node),
          peers_(peers),
          works_(works),
          engine_(engine),
          sleeper_(sleeper),
          scheduler_(scheduler),
          spin_pauses_(spin_pauses) {}

    static constexpr std::size_t kMaxTransfers = 8;
    /// Sends the messages that can be sent now. Returns an ImmediateBatch, which holds P2p's lock, if anything was sent
    /// or if finish() may still complete the batch (for example receives only). Else returns an empty one: nothing has
    /// happened, and the caller submits the batch.
    [[nodiscard]] ImmediateBatch open(const TransferList& batch) noexcept
        EXCLUDES(kRunning) NO_THREAD_SAFETY_ANALYSIS;  // it does not know that the result holds the lock

private:
    friend class ImmediateBatch;

    /// Returns the sends that it has carried out, as bits. Returns nothing if there are none and finish() cannot
    /// complete the batch.
    [[nodiscard]] std::optional<std::uint32_t> send(const TransferList& batch) noexcept REQUIRES(kRunning);
    [[nodiscard]] DoneTransfers finish(const TransferList& batch, std::uint32_t done) noexcept RELEASE(kRunning);
    [[nodiscard]] bool receive(Neighbour& from, const Transfer& transfer) noexcept REQUIRES(kRunning);
    void release() noexcept RELEASE(kRunning);

    const Node& node_;
    Peers& peers_;
    const WorkTable& works_;
    const ProgressEngine& engine_;
    const Sleeper& sleeper_;
    Scheduler& scheduler_;
    const int spin_pauses_;
    PollChoice poll_choice_ GUARDED_BY(kRunning);
};

inline ImmediateBatch::~ImmediateBatch() {
    if (transfers_ != nullptr) transfers_->release();
}

inline DoneTransfers ImmediateBatch::finish(const TransferList& batch) && noexcept {
    if (transfers_ == nullptr) return {};
    return std::exchange(transfers_, nullptr)->finish(batch, done_);
}

}  // namespace ddp::detail::p2p
