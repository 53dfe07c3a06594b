#pragma once
// FlightRecorder: writes the operations of this process's groups into memory that its agent has mapped and can read
// even after a SIGKILL. An operation costs one atomic increment and a few plain stores, no lock and no system call.
// Groups use it on any thread. Without ddprun there is no recorder, and nothing is written.

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/flight_record_layout.hpp"
#include "common/mutex.hpp"
#include "worker_lib/src/recorder/record_entry.hpp"

namespace ddp::detail {

/// The slot of a group in the flight record; empty if it has none.
struct GroupEntry {
    ddprun::flight_record::GroupSlot* slot = nullptr;
    std::uint32_t id = 0;
    bool hidden = false;  ///< there was no slot for it
};

class FlightRecorder {
public:
    /// `memory` outlives this object; see take_recorder_memory().
    explicit FlightRecorder(ddprun::flight_record::Memory& memory) : memory_(memory) {}

    /// Adds a new group; it is `hidden` when no slot is left.
    /// members   world ranks, by group rank
    [[nodiscard]] GroupEntry add(std::string_view name, int rank, const std::vector<int>& members) EXCLUDES(mutex_);
    /// Marks a group as ended; its slot is reused when another group needs it.
    void remove(const GroupEntry& group) EXCLUDES(mutex_);
    /// Takes a slot for an operation. Until queue() is called with it, readers find no entry there.
    [[nodiscard]] EntrySlot claim();
    /// Writes the entry of a collective, and gives `entry` the number of its group.
    [[nodiscard]] static RecordEntry queue(ddprun::flight_record::Operation& entry, const EntrySlot& claim,
                                           const GroupEntry& group);
    /// Writes the entry of a send or receive, which has started already.
    static RecordEntry queue_transfer(ddprun::flight_record::Operation& entry, const EntrySlot& claim,
                                      const GroupEntry& group);
    /// Writes the entry of a message that has arrived, in the group of `receive`; nothing if that group has ended.
    [[nodiscard]] RecordEntry queue_beside(ddprun::flight_record::Operation& entry, const RecordEntry& receive);
    /// Records that the program aborted the group. Only the first call counts.
    void abort(std::string_view reason, const GroupEntry& group) EXCLUDES(mutex_);
    /// Records that the program destroys the group, which has not failed.
    void leave(bool by_exception, const GroupEntry& group);
    /// As ddp::set_phase().
    void set_phase(std::string_view text) EXCLUDES(mutex_);
    /// Sets a phase that the library knows by itself, unless the program has ever set one. Empty: none.
    void set_default_phase(std::string_view text) EXCLUDES(mutex_);
    /// Returns the slot for the call in which a CUDA device's thread is; null: there is none for that device.
    [[nodiscard]] ddprun::flight_record::Guarded<ddprun::flight_record::DeviceCall>* device_call(int device);
    /// As Context::preempted().
    [[nodiscard]] bool preempted() const { return memory_.preemption.noticed.load(std::memory_order_relaxed) != 0; }
    /// As ddp::set_step().
    void set_step(std::uint64_t step);
    /// As ddp::agree_to_stop().
    [[nodiscard]] bool agree_to_stop();

private:
    void store_phase(std::string_view text) REQUIRES(mutex_);
    static void write(const EntrySlot& claim, ddprun::flight_record::Operation& entry);

    ddprun::flight_record::Memory& memory_;
    ddprun::Mutex mutex_;  ///< also guards groups, aborts and phase of the memory
    std::uint32_t groups_ GUARDED_BY(mutex_) = 0;
    bool program_sets_phase_ GUARDED_BY(mutex_) = false;
};

/// Returns the recorder of this process, whose memory the agent handed over by DDPRUN_RECORDER_FD; taken at the first
/// call. Null: there is none, another process has it, or this is a fork of the process that has it.
[[nodiscard]] FlightRecorder* process_recorder();

// Inline, because small messages spend a tenth of their time here.

inline void FlightRecorder::write(const EntrySlot& claim, ddprun::flight_record::Operation& entry) {
    if (claim.slot == nullptr) return;
    entry.id = claim.id;
    ddprun::flight_record::OperationSlot& slot = *claim.slot;
    slot.id.store(entry.id, std::memory_order_relaxed);
    slot.started.store(0, std::memory_order_release);
    slot.ended.store(0, std::memory_order_release);
    slot.waited.store(0, std::memory_order_release);
    slot.failure.store(ddprun::flight_record::Failure::kOther, std::memory_order_release);
    slot.operation.finish_store(entry);
}

inline RecordEntry FlightRecorder::queue_transfer(ddprun::flight_record::Operation& entry, const EntrySlot& claim,
                                                  const GroupEntry& group) {
    if (group.slot == nullptr) return {};
    entry.group = group.id;
    entry.seq = group.slot->queued.load(std::memory_order_relaxed);
    write(claim, entry);
    if (claim.slot != nullptr) claim.slot->started.store(entry.queued, std::memory_order_relaxed);
    return {claim.slot, *group.slot, claim.id, 0};
}

}  // namespace ddp::detail
