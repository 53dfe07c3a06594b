#pragma once
// OperationRecord and TransferRecord: the flight-record entries of an operation or batch that GroupImpl is submitting.
// GroupImpl makes one on its stack for each call and passes it to the backend. The backend chooses when it calls
// write(), once: an entry that is written after the announcement to the peers costs no time, because the peers fetch
// the announcement meanwhile. One thread at a time, as for submit().

#include <cassert>
#include <optional>
#include <vector>

#include "common/clock.hpp"
#include "worker_lib/src/operation/group_recorder.hpp"
#include "worker_lib/src/operation/operation.hpp"
#include "worker_lib/src/operation/transfer.hpp"

namespace ddp::detail {

/// Whether peers may already see the operation. Then it counts as called, even if it fails.
enum class Announced : bool { kNo, kYes };

/// The entry of one operation while it is submitted.
class OperationRecord {
public:
    /// Makes a record that writes nothing.
    OperationRecord() = default;
    /// Reserves an entry: afterwards write() needs no locked instruction.
    /// tick   ddprun::last_tick(), the time of an operation that ends in the call itself
    OperationRecord(GroupRecorder& group, ddprun::TimePoint tick)
        : group_(&group), reserved_(group.claim()), queued_(tick) {}
    OperationRecord(const OperationRecord&) = delete;
    OperationRecord& operator=(const OperationRecord&) = delete;

    /// Writes the entry and gives it to the operation. Call it before the operation may end, wait, or be moved from.
    void write(Operation& operation, Announced announced) {
        assert(!announced_ && "a backend calls write() once");
        announced_ = announced;
        if (group_ == nullptr) return;
        if (announced == Announced::kNo && group_->is_written()) queued_ = ddprun::Clock::now();
        entry_ = operation.record_entry = group_->queue(operation, reserved_, queued_);
    }
    /// Marks the operation as started and done in the call.
    void done_at_once() const {
        assert(announced_ && "a backend calls write() for each operation that it carries out");
        entry_.done_at_once(queued_);
    }
    /// Marks the operation as failed if it was announced. Otherwise it was never called, and its number is free again.
    void refused() const { announced_ == Announced::kYes ? entry_.ended(false) : entry_.refused(); }

private:
    GroupRecorder* group_ = nullptr;
    EntrySlot reserved_;
    ddprun::TimePoint queued_;
    std::optional<Announced> announced_;  ///< nothing before write()
    RecordEntry entry_;
};

/// The same for a batch of sends and receives, which has an entry for each.
class TransferRecord {
public:
    TransferRecord() = default;
    /// Reserves entries, and puts them into the batch.
    TransferRecord(GroupRecorder& group, TransferList& batch, ddprun::TimePoint tick) : group_(&group), queued_(tick) {
        group.claim(batch);
    }
    TransferRecord(const TransferRecord&) = delete;
    TransferRecord& operator=(const TransferRecord&) = delete;

    /// announced   whether a peer may already have received a part of it
    void write(TransferList& batch, Announced announced) {
        if (group_ == nullptr) return;
        if (announced == Announced::kNo && group_->is_written()) queued_ = ddprun::Clock::now();
        group_->queue(batch, queued_);
        if (announced == Announced::kNo) entries_ = batch.record_entries;
    }
    /// Marks a written batch as done in the call.
    void done_at_once(const TransferList& batch) const {
        for (const RecordEntry& entry : batch.record_entries) entry.done_at_once(queued_);
    }
    /// Marks a batch as refused, unless it was announced: if that one cannot go on, the group has failed.
    void refused() const {
        for (const RecordEntry& entry : entries_) entry.refused();
    }

private:
    GroupRecorder* group_ = nullptr;
    ddprun::TimePoint queued_;
    std::vector<RecordEntry> entries_;  ///< of a batch that can still be refused
};

}  // namespace ddp::detail
