// What becomes of an operation that stands on the board, and the place of a group there.

#include "worker_lib/src/backend.hpp"
#include "worker_lib/src/board.hpp"
#include "worker_lib/src/board_writing.hpp"

namespace ddp::detail {

namespace layout = ddprun::board;

namespace {

/// Operations may end on several threads: one that comes late takes nothing back.
void raise_to(std::atomic<std::uint64_t>& number, std::uint64_t to) {
    if (number.load(std::memory_order_relaxed) < to) number.store(to, std::memory_order_relaxed);
}

}  // namespace

void BoardTicket::mark_started() const {
    if (is_fork.load(std::memory_order_relaxed)) return;
    if (has_slot()) slot_->started.store(now(), std::memory_order_relaxed);
    if (seq_ != 0) raise_to(group_->started, seq_);
}

/// A thread that waits says more than one that looks, and who looked first has waited longest.
void BoardTicket::mark_waited(bool blocked) const {
    if (is_fork.load(std::memory_order_relaxed) || !has_slot()) return;
    const std::int64_t known = slot_->waited.load(std::memory_order_relaxed);
    if (known > 0 || (known < 0 && !blocked)) return;
    slot_->waited.store(blocked ? now() : -now(), std::memory_order_relaxed);
}

void BoardTicket::mark_ended(bool well, bool timed_out) const {
    if (is_fork.load(std::memory_order_relaxed)) return;
    if (has_slot()) {
        if (timed_out) slot_->failure.store(layout::Failure::kTimedOut, std::memory_order_relaxed);
        slot_->ended.store(well ? now() : -now(), std::memory_order_release);
    }
    if (seq_ != 0 && well) raise_to(group_->done, seq_);
}

void BoardTicket::mark_mismatched() const {
    if (is_fork.load(std::memory_order_relaxed) || !has_slot()) return;
    slot_->failure.store(layout::Failure::kMismatch, std::memory_order_relaxed);
}

void BoardTicket::mark_aborted(std::string_view reason) const {
    if (Board* const board = process_board()) board->abort(reason, {.slot = group_});
}

/// The caller has the group's lock, so that nobody has queued anything behind it.
void BoardTicket::mark_refused() const {
    if (is_fork.load(std::memory_order_relaxed)) return;
    if (has_slot()) slot_->id.store(0, std::memory_order_relaxed);
    if (seq_ != 0) group_->queued.store(seq_ - 1, std::memory_order_relaxed);
}

void BoardTicket::mark_done(ddprun::TimePoint queued) const {
    if (is_fork.load(std::memory_order_relaxed)) return;
    if (has_slot()) {
        slot_->started.store(nanoseconds(queued), std::memory_order_relaxed);
        slot_->ended.store(nanoseconds(queued), std::memory_order_relaxed);
    }
    if (seq_ == 0) return;
    raise_to(group_->started, seq_);
    raise_to(group_->done, seq_);
}

BoardPlace::BoardPlace(const GroupSpec& spec, std::string_view name)
    : board_(process_board()), group_(board_ != nullptr ? board_->add(spec, name) : BoardGroup()) {}

BoardPlace::~BoardPlace() {
    if (may_write()) board_->remove(group_);
}

bool BoardPlace::may_write() const { return board_ != nullptr && !is_fork.load(std::memory_order_relaxed); }

BoardTicket BoardPlace::queue(const Operation& operation, const BoardClaim& claim, ddprun::TimePoint now) {
    return claim.id != 0 ? board_->queue(operation, claim, group_, now) : BoardTicket();
}

void BoardPlace::claim(TransferBatch& batch) {
    if (may_write()) board_->claim(batch, group_);
}

void BoardPlace::queue(TransferBatch& batch, ddprun::TimePoint now) {
    if (!batch.tickets.empty()) Board::queue(batch, group_, now);
}

BoardTicket BoardPlace::queue(const StoreStep& step, ddprun::TimePoint now) {
    return may_write() ? board_->queue(step, group_, now) : BoardTicket();
}

void BoardPlace::abort(std::string_view reason) {
    if (may_write()) board_->abort(reason, group_);
}

void BoardPlace::leave(bool by_exception) {
    if (may_write()) Board::leave(by_exception, group_);
}

}  // namespace ddp::detail
