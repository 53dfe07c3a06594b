// Messages that need no Work: small ones between ranks of a node, of which the receiver has come, or comes within a
// moment. The caller's thread writes and reads the lanes itself; nothing is allocated, and nothing fails.
//
// This may be so only where no message overtakes another: nothing is submitted that has not been started, nothing
// waits in the outbox of the peer, and nothing else is to be received. All else goes the usual way, with what remains.
// open(), finish() and submit() are called under the lock of the group that numbers the batches. So whoever submits
// while we hold `running_` has done so before, and we have seen it: nobody leaves his work to us, and we need not look
// behind the lock whether somebody has.

#include <algorithm>

#include "worker_lib/src/native/p2p.hpp"
#include "worker_lib/src/native/waiter.hpp"

namespace ddp::detail {

namespace {

/// As Waiter::glance(): a microsecond or two.
constexpr int kLooks = 40;
constexpr int kLooksWithoutPause = 8;
/// Who has looked so often in vain posts receives long before they are met: of such glances only one in so many is
/// long.
constexpr unsigned kInVain = 4;
constexpr unsigned kTryAgain = 16;
/// Two ranks that write to each other at the same time, and then read at the same time, are in each other's way when it
/// is much: measured with 16 KiB.
constexpr std::size_t kMostOfSeveral = std::size_t{2} << 10;

bool is_small(const TransferBatch& batch) {
    if (batch.transfers.size() == 1) return true;
    return std::ranges::all_of(batch.transfers,
                               [](const Transfer& one) { return one.buffer.bytes() <= kMostOfSeveral; });
}

}  // namespace

P2p::LocalPeer* P2p::neighbour(int rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (index >= neighbour_of_.size() || neighbour_of_[index] < 0) return nullptr;
    return &neighbours_[static_cast<std::size_t>(neighbour_of_[index])];
}

bool P2p::open(const TransferBatch& batch) noexcept {
    if (batch.transfers.size() > kMostAtOnce || !is_small(batch)) return false;
    if (submitted_any_.load(std::memory_order_acquire)) return false;
    Running running(running_, std::try_to_lock);
    if (!running || failure_ || setup_.node.poisoned()) return false;
    bool may_finish = in_flight_.empty();
    for (std::size_t i = 0; i < batch.transfers.size(); ++i) {
        const Transfer& transfer = batch.transfers[i];
        LocalPeer* const to = neighbour(transfer.peer);
        if (to == nullptr) may_finish = false;
        if (!transfer.sends) continue;
        if (to == nullptr || !to->peer->send_at_once(batch, transfer)) {
            may_finish = false;
            break;
        }
        at_once_ |= 1U << i;
        ring(*to);
    }
    if (!may_finish && at_once_ == 0) return false;
    opening_ = std::move(running);
    return true;
}

bool P2p::finish(const TransferBatch& batch) noexcept {
    const std::size_t all = batch.transfers.size();
    std::size_t done = 0;
    for (std::size_t i = 0; i < all; ++i) {
        const Transfer& transfer = batch.transfers[i];
        if (transfer.sends) {
            done += at_once_ >> i & 1U;
            continue;
        }
        LocalPeer* const from = in_flight_.empty() ? neighbour(transfer.peer) : nullptr;
        if (from == nullptr || !glance(*from, transfer)) break;  // what follows may be for the same tag
        at_once_ |= 1U << i;
        ++done;
    }
    const bool watched = !in_flight_.empty();
    opening_.unlock();
    // The thread may have found the lock taken, and sleep for long: as in hand_over().
    if (watched) {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (long_nap_.load(std::memory_order_seq_cst)) interrupt();
    }
    if (done < all) return false;
    at_once_ = 0;
    return true;
}

/// Whether it has come; waits for that as long as a peer takes that comes at the same time.
bool P2p::glance(LocalPeer& from, const Transfer& transfer) noexcept {
    const bool is_short = pauses_ == 0 || (vain_ >= kInVain && vain_ % kTryAgain != 0);
    const int looks = is_short ? 1 : kLooks;
    for (int i = 0; i < looks; ++i) {
        switch (from.peer->receive_at_once(transfer)) {
            case P2pPeer::Look::kNothing: break;
            case P2pPeer::Look::kOther: return false;
            case P2pPeer::Look::kTaken:
                vain_ = 0;
                if (from.peer->has_made_room()) ring(from);
                return true;
        }
        if (i >= kLooksWithoutPause) Waiter::pause();
    }
    ++vain_;
    return false;
}

}  // namespace ddp::detail
