#include "worker_lib/src/native/p2p/immediate.hpp"

#include <algorithm>

#include "worker_lib/src/native/shm/waiter.hpp"

namespace ddp::detail::p2p {

namespace {

/// As in Waiter::glance().
constexpr int kLooks = 40;
constexpr int kLooksWithoutPause = 8;
/// Maximum size of a message in a batch of several. With larger ones, two ranks that write to each other at the same
/// time, and then read at the same time, slow each other down.
constexpr std::size_t kMaxOfSeveral = std::size_t{2} << 10;

bool is_small(const TransferList& batch) {
    if (batch.transfers.size() == 1) return true;
    return std::ranges::all_of(batch.transfers,
                               [](const Transfer& one) { return one.buffer.bytes() <= kMaxOfSeveral; });
}

}  // namespace

ImmediateBatch ImmediateTransfers::open(const TransferList& batch) noexcept {
    if (batch.transfers.size() > kMaxTransfers || !is_small(batch)) return {};
    if (works_.any_submitted(std::memory_order_acquire)) return {};
    RunningMutex& running = scheduler_.running();
    if (!running.try_lock()) return {};
    if (const auto sent = send(batch)) return {*this, *sent};
    running.unlock();
    return {};
}

std::optional<std::uint32_t> ImmediateTransfers::send(const TransferList& batch) noexcept {
    if (engine_.failed() || node_.failure.poisoned()) return std::nullopt;
    bool may_finish = works_.in_flight().empty();
    std::uint32_t done = 0;
    for (std::size_t i = 0; i < batch.transfers.size(); ++i) {
        const Transfer& transfer = batch.transfers[i];
        Neighbour* const to = peers_.neighbour(transfer.peer);
        if (to == nullptr) may_finish = false;
        if (!transfer.sends) continue;
        if (to == nullptr || !to->peer->send_immediately(batch, transfer)) {
            may_finish = false;
            break;
        }
        done |= 1U << i;
        sleeper_.wake(*to->page);
    }
    if (!may_finish && done == 0) return std::nullopt;
    return done;
}

DoneTransfers ImmediateTransfers::finish(const TransferList& batch, std::uint32_t done) noexcept {
    const std::size_t all = batch.transfers.size();
    const bool is_busy = !works_.in_flight().empty();
    std::size_t count = 0;
    for (std::size_t i = 0; i < all; ++i) {
        const Transfer& transfer = batch.transfers[i];
        if (transfer.sends) {
            count += done >> i & 1U;
            continue;
        }
        Neighbour* const from = is_busy ? nullptr : peers_.neighbour(transfer.peer);
        if (from == nullptr || !receive(*from, transfer)) break;  // later ones may be of the same tag
        done |= 1U << i;
        ++count;
    }
    release();
    return {.bits = done, .all = count == all};
}

void ImmediateTransfers::release() noexcept {
    const bool is_busy = !works_.in_flight().empty();
    scheduler_.running().unlock();
    if (is_busy) scheduler_.end_long_sleep();
}

/// Receives a message if it arrives within the time that it takes if both ranks call at the same time.
bool ImmediateTransfers::receive(Neighbour& from, const Transfer& transfer) noexcept {
    const int looks = spin_pauses_ > 0 && poll_choice_.polls() ? kLooks : 1;
    for (int i = 0; i < looks; ++i) {
        switch (from.peer->receive_immediately(transfer)) {
            case Peer::Look::kNothing: break;
            case Peer::Look::kOther: return false;
            case Peer::Look::kTaken:
                poll_choice_.found();
                if (from.peer->has_made_room()) sleeper_.wake(*from.page);
                return true;
        }
        if (i >= kLooksWithoutPause) Waiter::pause();
    }
    poll_choice_.missed();
    return false;
}

}  // namespace ddp::detail::p2p
