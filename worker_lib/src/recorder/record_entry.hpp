#pragma once
// RecordEntry: a handle on the entry of one operation in the flight record of this process. FlightRecorder makes
// entries; works and batches hold them as values and mark them on any thread, with a few plain stores each.

#include <cstdint>
#include <string_view>

#include "common/clock.hpp"
#include "common/flight_record_layout.hpp"

namespace ddp::detail {

/// A slot for an operation that is about to be recorded. Taking it early leaves no locked instruction for later: such
/// an instruction waits for all earlier stores, including those that peers have to see first.
struct EntrySlot {
    ddprun::flight_record::OperationSlot* slot = nullptr;  ///< null: there is none for it
    std::uint64_t id = 0;
};

/// Marks the progress of one operation. An empty entry marks nothing.
class RecordEntry {
public:
    RecordEntry() = default;
    /// `slot` may be null.
    RecordEntry(ddprun::flight_record::OperationSlot* slot, ddprun::flight_record::GroupSlot& group, std::uint64_t id,
                std::uint64_t seq)
        : slot_(slot), group_(&group), id_(id), seq_(seq) {}

    [[nodiscard]] EntrySlot claim() const { return {slot_, id_}; }

    /// Records that the backend has begun with the operation.
    void started() const {
        if (group_ != nullptr) mark_started();
    }
    /// Records that the operation has ended; `timed_out`: it failed by a deadline.
    void ended(bool well, bool timed_out = false) const {
        if (group_ != nullptr) mark_ended(well, timed_out);
    }

    /// Records that the operation is about to fail because the ranks called different operations.
    void mismatched() const {
        if (group_ != nullptr) mark_failure(ddprun::flight_record::Failure::kMismatch);
    }

    /// Records that the operation is about to fail because another rank was lost, or reported its failure.
    void peer_failed() const {
        if (group_ != nullptr) mark_failure(ddprun::flight_record::Failure::kPeerFailed);
    }

    /// Records that the host of that rank of the job has acknowledged nothing for a while; -1: all hosts acknowledge
    /// again.
    void unreachable(int rank) const {
        if (group_ != nullptr) mark_unreachable(rank);
    }

    /// Records, for the group and not for the operation, that a callback of the operation threw, and so aborts the
    /// group. Only the first abort of a group counts. reason: the text of the exception.
    void aborted(std::string_view reason) const {
        if (group_ != nullptr) mark_aborted(reason);
    }

    /// Takes the operation back: it was refused, and the next one of the group gets its number. Call it before that one
    /// is queued.
    void refused() const {
        if (group_ != nullptr) mark_refused();
    }

    /// Records that a thread waits for the operation: `blocked` until it has ended, else by polling. Reads the clock
    /// once.
    void waited(bool blocked) const {
        if (group_ != nullptr) mark_waited(blocked);
    }

    /// Records that the operation began and ended when it was queued, without reading the clock again.
    void done_at_once(ddprun::TimePoint queued) const {
        if (group_ != nullptr) mark_done(queued);
    }

private:
    friend class FlightRecorder;

    void mark_started() const;
    void mark_waited(bool blocked) const;
    void mark_done(ddprun::TimePoint queued) const;
    void mark_ended(bool well, bool timed_out) const;
    void mark_failure(ddprun::flight_record::Failure failure) const;
    void mark_unreachable(int rank) const;
    void mark_aborted(std::string_view reason) const;
    void mark_refused() const;
    [[nodiscard]] bool has_slot() const { return slot_ != nullptr && slot_->id.load(std::memory_order_relaxed) == id_; }

    ddprun::flight_record::OperationSlot* slot_ = nullptr;
    ddprun::flight_record::GroupSlot* group_ = nullptr;
    std::uint64_t id_ = 0;
    std::uint64_t seq_ = 0;  ///< 0: a send or receive, which does not count among the group's collectives
};

}  // namespace ddp::detail
