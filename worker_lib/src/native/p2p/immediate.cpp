#include "worker_lib/src/native/p2p/immediate.hpp"

#include <algorithm>

#include "worker_lib/src/native/shm/waiter.hpp"

namespace ddp::detail::p2p {

namespace {

/// As in Waiter::glance().
constexpr int kLooks = 40;
constexpr int kLooksWithoutPause = 8;
/// Number of vain receives after which a program is taken for one that posts its receives early. From then on only
/// every kTryAgain-th receive waits for its message.
constexpr unsigned kMaxVain = 4;
constexpr unsigned kTryAgain = 16;
/// Maximum size of a message in a batch of several. With larger ones, two ranks that write to each other at the same
/// time, and then read at the same time, slow each other down.
constexpr std::size_t kMaxOfSeveral = std::size_t{2} << 10;

bool is_small(const TransferBatch& batch) {
    if (batch.transfers.size() == 1) return true;
    return std::ranges::all_of(batch.transfers,
                               [](const Transfer& one) { return one.buffer.bytes() <= kMaxOfSeveral; });
}

}  // namespace

bool ImmediateTransfers::open(const TransferBatch& batch) noexcept {
    if (batch.transfers.size() > kMaxTransfers || !is_small(batch)) return false;
    if (works_.any_submitted(std::memory_order_acquire)) return false;
    std::unique_lock running(scheduler_.running(), std::try_to_lock);
    if (!running || engine_.failed() || node_.failure.poisoned()) return false;
    bool may_finish = works_.in_flight().empty();
    for (std::size_t i = 0; i < batch.transfers.size(); ++i) {
        const Transfer& transfer = batch.transfers[i];
        Neighbour* const to = peers_.neighbour(transfer.peer);
        if (to == nullptr) may_finish = false;
        if (!transfer.sends) continue;
        if (to == nullptr || !to->peer->send_immediately(batch, transfer)) {
            may_finish = false;
            break;
        }
        done_ |= 1U << i;
        sleeper_.wake(*to->page);
    }
    if (!may_finish && done_ == 0) return false;
    running_ = std::move(running);
    return true;
}

bool ImmediateTransfers::finish(const TransferBatch& batch) noexcept {
    const std::size_t all = batch.transfers.size();
    const bool is_busy = !works_.in_flight().empty();
    std::size_t done = 0;
    for (std::size_t i = 0; i < all; ++i) {
        const Transfer& transfer = batch.transfers[i];
        if (transfer.sends) {
            done += done_ >> i & 1U;
            continue;
        }
        Neighbour* const from = is_busy ? nullptr : peers_.neighbour(transfer.peer);
        if (from == nullptr || !receive(*from, transfer)) break;  // later ones may be of the same tag
        done_ |= 1U << i;
        ++done;
    }
    running_.unlock();
    if (is_busy) scheduler_.end_long_sleep();
    if (done < all) return false;
    done_ = 0;
    return true;
}

/// Receives a message if it arrives within the time that it takes if both ranks call at the same time.
bool ImmediateTransfers::receive(Neighbour& from, const Transfer& transfer) noexcept {
    const bool looks_once = pauses_ == 0 || (vain_ >= kMaxVain && vain_ % kTryAgain != 0);
    const int looks = looks_once ? 1 : kLooks;
    for (int i = 0; i < looks; ++i) {
        switch (from.peer->receive_immediately(transfer)) {
            case Peer::Look::kNothing: break;
            case Peer::Look::kOther: return false;
            case Peer::Look::kTaken:
                vain_ = 0;
                if (from.peer->has_made_room()) sleeper_.wake(*from.page);
                return true;
        }
        if (i >= kLooksWithoutPause) Waiter::pause();
    }
    ++vain_;
    return false;
}

}  // namespace ddp::detail::p2p
