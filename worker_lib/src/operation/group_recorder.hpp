#pragma once
// GroupRecorder: one group in the flight recorder of this process. It turns the group's operations, transfers and steps
// at the store into entries. GroupImpl owns one for its operations and one for its steps at the store.

#include <string_view>

#include "common/clock.hpp"
#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/operation/operation.hpp"
#include "worker_lib/src/operation/transfer.hpp"
#include "worker_lib/src/recorder/flight_recorder.hpp"

namespace ddp::detail {

/// A step in which the members of a group wait for each other at the store.
struct StoreStep {
    std::string_view what;  ///< "monitored_barrier"
    std::string_view tag;
    ddprun::Duration timeout{};
    std::uint64_t seq = 0;  ///< among these steps of its group, from 1
};

/// Adds a new group to the recorder, under its own name unless one is given.
[[nodiscard]] GroupEntry add_group(FlightRecorder& recorder, const GroupSpec& spec, std::string_view name = {});

/// Writes an entry for an operation that is queued.
[[nodiscard]] RecordEntry record(const Operation& operation, const EntrySlot& claim, const GroupEntry& group,
                                 ddprun::TimePoint now);
/// Claims an entry for a step at the store, and writes it. Returns an empty entry if `group` has no slot.
[[nodiscard]] RecordEntry record(FlightRecorder& recorder, const StoreStep& step, const GroupEntry& group,
                                 ddprun::TimePoint now);
/// Reserves an entry for each transfer of a batch.
void claim_entries(FlightRecorder& recorder, TransferList& batch, const GroupEntry& group);
/// Writes the entry of each transfer of a batch: transfers begin at once.
void record(TransferList& batch, const GroupEntry& group, ddprun::TimePoint now);

/// Writes an entry for a message that arrived while this rank waits for another message of the same sender: `receive`
/// is the entry of that wait. The entry ends when the message is received.
/// sent   the transfer as its sender describes it, except for `peer`
[[nodiscard]] RecordEntry note_arrival(FlightRecorder& recorder, const TransferList& sent, const RecordEntry& receive);
/// Writes an entry for a message that arrived for `receive` and does not fit it.
void note_mismatch(FlightRecorder& recorder, const TransferList& sent, const RecordEntry& receive);

/// Owns the slot of one group in the flight recorder. Does nothing if no agent reads the recorder.
class GroupRecorder {
public:
    explicit GroupRecorder(const GroupSpec& spec, std::string_view name = {});
    ~GroupRecorder();
    GroupRecorder(const GroupRecorder&) = delete;
    GroupRecorder& operator=(const GroupRecorder&) = delete;

    /// Returns whether there is a flight recorder at all, so that times are needed.
    [[nodiscard]] bool is_written() const { return recorder_ != nullptr; }
    /// Reserves an entry for queue() to write. Returns an empty one if nothing is written.
    [[nodiscard]] EntrySlot claim() { return may_write() && group_.slot != nullptr ? recorder_->claim() : EntrySlot(); }
    [[nodiscard]] RecordEntry queue(const Operation& operation, const EntrySlot& claim, ddprun::TimePoint now);
    /// The same for each transfer of a batch, which gets the entries.
    void claim(TransferList& batch);
    void queue(TransferList& batch, ddprun::TimePoint now);
    [[nodiscard]] RecordEntry queue(const StoreStep& step, ddprun::TimePoint now);
    /// Records that the program aborts the group.
    void abort(std::string_view reason);
    /// Records that the program destroys the group, which has not failed.
    void leave(bool by_exception);

private:
    [[nodiscard]] bool may_write() const;

    FlightRecorder* const recorder_;
    const GroupEntry group_;
};

}  // namespace ddp::detail
