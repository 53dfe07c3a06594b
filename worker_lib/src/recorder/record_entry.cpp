#include "worker_lib/src/recorder/record_entry.hpp"

#include "worker_lib/src/recorder/flight_recorder.hpp"
#include "worker_lib/src/recorder/recording.hpp"

namespace ddp::detail {

namespace layout = ddprun::flight_record;

namespace {

/// Raises a number of a group. Load and store need not be one step, because one thread at a time begins and completes
/// the collectives of a group: OperationRunner::running_ admits one, and an NCCL group has one thread for each of the
/// two. A locked instruction would wait for the stores that peers have to see first (EntrySlot). Two waits at the store
/// may end on two threads at once; then the number may be too low until the next one ends.
void raise_to(std::atomic<std::uint64_t>& number, std::uint64_t to) {
    if (number.load(std::memory_order_relaxed) < to) number.store(to, std::memory_order_relaxed);
}

}  // namespace

void RecordEntry::mark_started() const {
    if (is_fork.load(std::memory_order_relaxed)) return;
    if (has_slot()) slot_->started.store(now(), std::memory_order_relaxed);
    if (seq_ != 0) raise_to(group_->started, seq_);
}

/// A blocked thread counts more than one that polls; of several, the first one has waited longest.
void RecordEntry::mark_waited(bool blocked) const {
    if (is_fork.load(std::memory_order_relaxed) || !has_slot()) return;
    const std::int64_t known = slot_->waited.load(std::memory_order_relaxed);
    if (known > 0 || (known < 0 && !blocked)) return;
    slot_->waited.store(blocked ? now() : -now(), std::memory_order_relaxed);
}

void RecordEntry::mark_ended(bool well, bool timed_out) const {
    if (is_fork.load(std::memory_order_relaxed)) return;
    if (has_slot()) {
        if (timed_out) mark_failure(layout::Failure::kTimedOut);
        slot_->ended.store(well ? now() : -now(), std::memory_order_release);
    }
    if (seq_ != 0 && well) raise_to(group_->done, seq_);
}

/// One thread at a time ends an operation, so that load and store need not be one step.
void RecordEntry::mark_failure(layout::Failure failure) const {
    if (is_fork.load(std::memory_order_relaxed) || !has_slot()) return;
    const layout::Failure known = slot_->failure.load(std::memory_order_relaxed);
    slot_->failure.store(known | failure, std::memory_order_relaxed);
}

/// As mark_failure(): the thread that runs the operation ends it, too.
void RecordEntry::mark_unreachable(int rank) const {
    if (is_fork.load(std::memory_order_relaxed) || !has_slot()) return;
    const layout::Failure known = slot_->failure.load(std::memory_order_relaxed);
    slot_->failure.store(layout::with_unreachable(known, rank), std::memory_order_relaxed);
}

void RecordEntry::mark_aborted(std::string_view reason) const {
    if (FlightRecorder* const recorder = process_recorder()) recorder->abort(reason, {.slot = group_});
}

/// The caller holds the group's lock, so that no operation has been queued behind it.
void RecordEntry::mark_refused() const {
    if (is_fork.load(std::memory_order_relaxed)) return;
    if (has_slot()) slot_->id.store(0, std::memory_order_relaxed);
    if (seq_ != 0) group_->queued.store(seq_ - 1, std::memory_order_relaxed);
}

void RecordEntry::mark_done(ddprun::TimePoint queued) const {
    if (is_fork.load(std::memory_order_relaxed)) return;
    if (has_slot()) {
        slot_->started.store(nanoseconds(queued), std::memory_order_relaxed);
        slot_->ended.store(nanoseconds(queued), std::memory_order_relaxed);
    }
    if (seq_ == 0) return;
    raise_to(group_->started, seq_);
    raise_to(group_->done, seq_);
}

}  // namespace ddp::detail
