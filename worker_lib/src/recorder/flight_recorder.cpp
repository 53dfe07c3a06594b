#include "worker_lib/src/recorder/flight_recorder.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <tuple>

#include "common/fnv.hpp"
#include "common/text/cut.hpp"
#include "common/text/number.hpp"
#include "ddp/phase.hpp"
#include "ddp/preemption.hpp"
#include "worker_lib/src/recorder/flight_recorder_memory.hpp"
#include "worker_lib/src/recorder/recording.hpp"

namespace ddp::detail {

namespace layout = ddprun::flight_record;

namespace {

/// How often a rank looks whether the agents have agreed on the step at which all stop.
constexpr std::chrono::milliseconds kAgreementPoll{1};

/// Shortens a name that is too long to its beginning, a hash of all of it, and its end. Readers distinguish groups by
/// name, and the names of a split's parts differ at the end or, in parts of parts, anywhere.
std::string recorded_name(std::string_view name) {
    constexpr std::size_t kRoom = std::tuple_size_v<decltype(layout::Group::name)>;
    constexpr std::size_t kEnd = 40;
    if (name.size() <= kRoom) return std::string(name);
    ddprun::Fnv64 hash;
    hash.add(name);
    std::size_t from = name.size() - kEnd;
    while (from < name.size() && (static_cast<unsigned char>(name[from]) & 0xC0U) == 0x80) ++from;  // whole characters
    const std::string end = fmt::format("[{:016x}]{}", hash.value(), name.substr(from));
    return ddprun::cut(name, kRoom - end.size()) + end;
}

/// Describes the members as runs. Returns false if they do not fit.
bool describe_members(const std::vector<int>& members, layout::Group& group) {
    for (std::size_t i = 0; i < members.size(); ++group.run_count) {
        if (group.run_count == layout::kRuns) return false;
        layout::Run& run = group.runs[group.run_count];
        run.first = members[i];
        run.count = 1;
        if (i + 1 < members.size()) run.stride = members[i + 1] - members[i];
        while (++i < members.size() && members[i] - members[i - 1] == run.stride) ++run.count;
    }
    return true;
}

FlightRecorder* take_inherited() {
    const char* text = std::getenv(layout::kDescriptorVariable);
    if (text == nullptr) return nullptr;
    std::string problem = "not a number";
    layout::Memory* memory = nullptr;
    if (const auto descriptor = ddprun::parse_number<int>(text)) memory = take_recorder_memory(*descriptor, problem);
    if (memory == nullptr) {
        const char* level = std::getenv("LOGLEVEL");
        if (level != nullptr && std::string_view(level) == "debug") {
            std::fputs(
                fmt::format("[ddp] no flight record: {}={}: {}\n", layout::kDescriptorVariable, text, problem).c_str(),
                stderr);
        }
        return nullptr;
    }
    ::pthread_atfork(nullptr, nullptr, [] { is_fork.store(true, std::memory_order_relaxed); });
    return new FlightRecorder(*memory);  // never deleted: threads may write until the process has ended
}

}  // namespace

FlightRecorder* process_recorder() {
    static FlightRecorder* const recorder = take_inherited();
    return is_fork.load(std::memory_order_relaxed) ? nullptr : recorder;
}

GroupEntry FlightRecorder::add(std::string_view name, int rank, const std::vector<int>& members) {
    const ddprun::Lock lock(mutex_);
    layout::GroupSlot* oldest = nullptr;
    std::uint32_t oldest_id = 0;
    for (layout::GroupSlot& slot : memory_.groups) {
        layout::Group group;
        const bool used = slot.group.load(group);
        if (used && group.live != 0) continue;
        if (oldest != nullptr && used && group.id >= oldest_id) continue;
        oldest = &slot;
        oldest_id = used ? group.id : 0;
        if (!used) break;
    }
    if (oldest == nullptr) {
        memory_.hidden_groups.fetch_add(1, std::memory_order_relaxed);
        return {.hidden = true};
    }
    layout::Group group;
    group.id = ++groups_;
    group.live = 1;
    group.rank = rank;
    group.size = static_cast<std::int32_t>(members.size());
    if (!describe_members(members, group)) group.run_count = 0;
    ddprun::copy_cut(group.name, recorded_name(name));
    for (auto* number : {&oldest->queued, &oldest->started, &oldest->done}) number->store(0, std::memory_order_relaxed);
    oldest->abort.clear();
    oldest->left.store(0, std::memory_order_relaxed);
    oldest->group.store(group);
    return {oldest, group.id};
}

void FlightRecorder::remove(const GroupEntry& entry) {
    if (entry.hidden) memory_.hidden_groups.fetch_sub(1, std::memory_order_relaxed);
    if (entry.slot == nullptr) return;
    const ddprun::Lock lock(mutex_);
    layout::Group group;
    if (!entry.slot->group.load(group)) return;
    group.live = 0;
    entry.slot->group.store(group);
}

/// Returns no slot if a thread that was interrupted for kOperations others is still writing to it. Then the operation
/// gets no entry.
EntrySlot FlightRecorder::claim() {
    const std::uint64_t id = memory_.last_operation.fetch_add(1, std::memory_order_relaxed) + 1;
    layout::OperationSlot& slot = memory_.operations[id % layout::kOperations];
    return {slot.operation.begin_store() ? &slot : nullptr, id};
}

RecordEntry FlightRecorder::queue(layout::Operation& entry, const EntrySlot& claim, const GroupEntry& group) {
    if (group.slot == nullptr) return {};
    entry.group = group.id;
    write(claim, entry);
    group.slot->queued.store(entry.seq, std::memory_order_relaxed);
    return {claim.slot, *group.slot, claim.id, entry.seq};
}

RecordEntry FlightRecorder::queue_beside(layout::Operation& entry, const RecordEntry& receive) {
    layout::Group group;
    if (receive.group_ == nullptr || !receive.group_->group.load(group)) return {};
    return queue_transfer(entry, claim(), {receive.group_, group.id});
}

void FlightRecorder::abort(std::string_view reason, const GroupEntry& group) {
    if (group.slot == nullptr) return;
    const ddprun::Lock lock(mutex_);
    layout::Abort abort;
    if (group.slot->abort.load(abort)) return;
    abort.at = now();
    abort.after = memory_.last_operation.load(std::memory_order_relaxed);
    ddprun::copy_cut(abort.reason, reason);
    group.slot->abort.store(abort);
}

void FlightRecorder::leave(bool by_exception, const GroupEntry& group) {
    if (group.slot == nullptr) return;
    group.slot->left_after.store(memory_.last_operation.load(std::memory_order_relaxed), std::memory_order_relaxed);
    group.slot->left.store(by_exception ? -now() : now(), std::memory_order_release);
}

void FlightRecorder::set_phase(std::string_view text) {
    const ddprun::Lock lock(mutex_);
    program_sets_phase_ = true;
    store_phase(text);
}

void FlightRecorder::set_default_phase(std::string_view text) {
    const ddprun::Lock lock(mutex_);
    if (!program_sets_phase_) store_phase(text);
}

void FlightRecorder::store_phase(std::string_view text) {
    layout::Phase phase;
    phase.since = now();
    ddprun::copy_cut(phase.text, text);
    memory_.phase.store(phase);
}

layout::Guarded<layout::DeviceCall>* FlightRecorder::device_call(int device) {
    const auto index = static_cast<std::size_t>(device);
    return device >= 0 && index < layout::kDevices ? &memory_.device_calls[index] : nullptr;
}

void FlightRecorder::set_step(std::uint64_t step) {
    const bool is_timed = memory_.steps.new_at.load(std::memory_order_relaxed) == 0;  // else the clock is not needed
    layout::note_step(memory_.steps, step, is_timed ? now() : 0);
}

/// The order of the store and the load is half of the agreement: see flight_record::Preemption.
bool FlightRecorder::agree_to_stop() {
    layout::Preemption& preemption = memory_.preemption;
    const std::uint64_t call = preemption.calls.load(std::memory_order_relaxed) + 1;
    preemption.calls.store(call);
    if (preemption.noticed.load() == 0) return false;
    std::uint64_t stop_at = 0;
    while ((stop_at = preemption.stop_at.load()) == 0) std::this_thread::sleep_for(kAgreementPoll);
    return call >= stop_at;
}

}  // namespace ddp::detail

namespace ddp {

bool agree_to_stop() {
    detail::FlightRecorder* const recorder = detail::process_recorder();
    return recorder != nullptr && recorder->agree_to_stop();
}

void set_phase(std::string_view text) {
    if (detail::FlightRecorder* recorder = detail::process_recorder()) recorder->set_phase(text);
}

void set_step(std::uint64_t step) {
    if (detail::FlightRecorder* recorder = detail::process_recorder()) recorder->set_step(step);
}

}  // namespace ddp
