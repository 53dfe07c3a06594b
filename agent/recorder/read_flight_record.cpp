#include "agent/recorder/read_flight_record.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "rendezvous/protocol/inspection.hpp"

namespace ddprun::agent {
namespace {

using protocol::FlightRecord;
using protocol::RankRun;
using protocol::RecordedGroup;
using protocol::RecordedOperation;
using std::chrono::nanoseconds;

constexpr std::int32_t kMaxRanks = 1 << 27;  // more than any job has, few enough to add two of them
constexpr std::size_t kMaxOlderInProgress = 32;
/// An operation that failed this recently is shown like one in progress: the verdict is about it.
constexpr nanoseconds kRecentFailure = protocol::kRecentTimeout;
constexpr std::uint64_t kMaxNumber = 1ull << 53;  // what JSON carries everywhere

template <std::size_t Size>
std::string text(const std::array<char, Size>& from) {
    const std::string_view all(from.data(), Size);
    std::string result(all.substr(0, all.find('\0')));
    // The text is shown within status lines.
    const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
    std::ranges::replace_if(result, is_control, '?');
    return result;
}

std::uint64_t sane(std::uint64_t number) { return std::min(number, kMaxNumber); }

/// Returns how long ago `time` was; never negative.
nanoseconds ago(std::int64_t time, std::int64_t now) {
    return nanoseconds(now - std::clamp<std::int64_t>(time, 0, now));
}

std::int64_t absolute(std::int64_t time) { return time > 0 ? time : -std::max(time, -INT64_MAX); }

std::vector<RankRun> members(const flight_record::Group& group) {
    if (group.run_count > flight_record::kRuns) return {};
    std::vector<RankRun> runs;
    std::int64_t total = 0;
    for (std::size_t i = 0; i < group.run_count; ++i) {
        const flight_record::Run& run = group.runs[i];
        const std::int64_t last = run.first + (run.count - std::int64_t{1}) * run.stride;
        const bool sound = run.first >= 0 && run.first < kMaxRanks && run.count > 0 && run.count <= group.size &&
                           run.stride > -kMaxRanks && run.stride < kMaxRanks && last >= 0 && last < kMaxRanks;
        if (!sound) return {};
        runs.push_back({run.first, run.count, run.stride});
        total += run.count;
    }
    return total == group.size ? runs : std::vector<RankRun>();
}

/// Returns the groups by the number that the writer gave each.
std::map<std::uint32_t, RecordedGroup> read_groups(const flight_record::Memory& record, std::int64_t now) {
    std::map<std::uint32_t, RecordedGroup> groups;
    for (const flight_record::GroupSlot& slot : record.groups) {
        flight_record::Group group;
        if (!slot.group.load(group) || group.id == 0 || group.size < 1 || group.size > kMaxRanks || group.rank < 0 ||
            group.rank >= group.size) {
            continue;
        }
        RecordedGroup& shown = groups[group.id];
        shown.name = text(group.name);
        shown.rank = group.rank;
        shown.size = group.size;
        shown.members = members(group);
        shown.live = group.live != 0;
        if (flight_record::Abort abort; slot.abort.load(abort)) {
            shown.aborted_ago = ago(abort.at, now);
            shown.aborted_after = sane(abort.after);
            shown.abort_reason = text(abort.reason);
        }
        if (const std::int64_t left = slot.left.load(std::memory_order_acquire); left != 0) {
            shown.left_ago = ago(absolute(left), now);
            shown.left_after = sane(slot.left_after.load(std::memory_order_relaxed));
            shown.left_by_exception = left < 0;
        }
        // This order of loads keeps done <= started <= queued although operations go on meanwhile.
        shown.done = sane(slot.done.load(std::memory_order_relaxed));
        shown.started = std::max(shown.done, sane(slot.started.load(std::memory_order_relaxed)));
        shown.queued = std::max(shown.started, sane(slot.queued.load(std::memory_order_relaxed)));
    }
    return groups;
}

/// The times and the error of an operation, which its slot has beside the entry.
struct Marks {
    std::int64_t started = 0;
    std::int64_t ended = 0;
    std::int64_t waited = 0;
    flight_record::Failure failure = flight_record::Failure::kOther;
};

RecordedOperation shown(const flight_record::Operation& operation, const Marks& marks, std::int64_t now) {
    RecordedOperation result;
    result.id = sane(operation.id);
    result.seq = sane(operation.seq);
    result.p2p_seq = sane(operation.p2p_seq);
    result.op = text(operation.op);
    result.reduce = text(operation.reduce);
    result.dtype = text(operation.dtype);
    result.tag = text(operation.tag);
    result.transfer_tag = operation.transfer_tag;
    result.peer = std::clamp(operation.peer, -1, kMaxRanks);
    result.count = sane(operation.count);
    result.input_count = sane(operation.input_count);
    result.output_count = sane(operation.output_count);
    result.fingerprint = operation.fingerprint;
    result.queued_ago = ago(operation.queued, now);
    result.timeout = std::chrono::milliseconds(operation.timeout_ms);
    if (marks.started > 0) result.started_ago = ago(marks.started, now);
    if (marks.ended != 0) result.ended_ago = ago(absolute(marks.ended), now);
    result.failed = marks.ended < 0;
    result.timed_out = result.failed && contains(marks.failure, flight_record::Failure::kTimedOut);
    result.mismatch = result.failed && contains(marks.failure, flight_record::Failure::kMismatch);
    result.peer_failed = result.failed && contains(marks.failure, flight_record::Failure::kPeerFailed);
    if (marks.ended <= 0) result.unreachable = std::clamp(flight_record::unreachable_in(marks.failure), -1, kMaxRanks);
    if (marks.waited != 0) result.waited_ago = ago(absolute(marks.waited), now);
    result.polled = marks.waited < 0;
    return result;
}

/// Returns the longest call in which the thread of a device is. `index`: of the groups, by their numbers.
protocol::DeviceCall read_device_call(const flight_record::Memory& record, const std::map<std::uint32_t, int>& index,
                                      std::int64_t now) {
    protocol::DeviceCall longest;
    for (const auto& slot : record.device_calls) {
        flight_record::DeviceCall call;
        if (!slot.load(call) || call.since <= 0) continue;
        if (ago(call.since, now) < std::max(protocol::kLongDeviceCall, longest.time)) continue;
        longest = {.name = text(call.call), .time = ago(call.since, now)};
        flight_record::Operation operation;
        const auto& entry = record.operations[call.operation % flight_record::kOperations];
        if (call.operation == 0 || !entry.operation.load(operation) || operation.id != call.operation) continue;
        if (const auto group = index.find(operation.group); group != index.end()) longest.group = group->second;
    }
    return longest;
}

/// Returns a key by which operations are sorted: the first ones are kept. Collectives come before transfers, transfers
/// before arrivals; the oldest of each kind come first.
auto priority_of(const RecordedOperation& operation) {
    return std::tuple(is_arrival(operation), operation.p2p_seq != 0, operation.id);
}

/// Limits the number of operations that are shown only because they are in progress.
void drop_older(FlightRecord& view, std::size_t max_operations) {
    const auto is_older = [&](const RecordedOperation& operation) {
        return operation.id + max_operations <= view.operations_in_all;
    };
    std::vector<decltype(priority_of({}))> older;
    for (const RecordedOperation& operation : view.operations) {
        if (is_older(operation)) older.push_back(priority_of(operation));
    }
    if (older.size() <= kMaxOlderInProgress) return;
    std::ranges::sort(older);
    const auto last = older[kMaxOlderInProgress - 1];
    std::erase_if(view.operations, [&](const RecordedOperation& operation) {
        const bool drop = is_older(operation) && priority_of(operation) > last;
        if (drop && !is_arrival(operation)) ++view.more_unfinished;
        return drop;
    });
}

}  // namespace

FlightRecord read_flight_record(const flight_record::Memory& record, TimePoint time, std::size_t max_operations) {
    FlightRecord view;
    view.written = record.pid.load() > 0;
    if (!view.written) return view;
    const std::int64_t now = std::chrono::duration_cast<nanoseconds>(time.time_since_epoch()).count();
    flight_record::Phase phase;
    if (record.phase.load(phase)) {
        view.phase = text(phase.text);
        view.phase_for = ago(phase.since, now);
    }
    const auto groups = read_groups(record, now);
    std::map<std::uint32_t, int> index;
    for (const auto& [id, group] : groups) {
        index[id] = static_cast<int>(view.groups.size());
        view.groups.push_back(group);
    }
    view.device_call = read_device_call(record, index, now);
    view.hidden_groups = static_cast<int>(std::min<std::uint64_t>(record.hidden_groups.load(), kMaxRanks));
    view.operations_in_all = sane(record.last_operation.load());
    for (const flight_record::OperationSlot& slot : record.operations) {
        const std::uint64_t id = slot.id.load(std::memory_order_acquire);
        const bool known = slot.started.load(std::memory_order_relaxed) > 0 || slot.waited.load() != 0;
        const std::int64_t end = slot.ended.load();
        const bool in_progress = known && (end == 0 || (end < 0 && ago(absolute(end), now) < kRecentFailure));
        if (!in_progress && sane(id) + max_operations <= view.operations_in_all) continue;
        flight_record::Operation operation;
        if (!slot.operation.load(operation) || operation.id == 0 || operation.id != id) continue;
        // Marks that are read after the operation belong to it if no other operation has taken the slot meanwhile.
        Marks marks;
        marks.ended = slot.ended.load(std::memory_order_acquire);
        marks.failure = slot.failure.load(std::memory_order_acquire);
        marks.waited = slot.waited.load(std::memory_order_acquire);
        marks.started = slot.started.load(std::memory_order_acquire);
        if (slot.id.load(std::memory_order_relaxed) != id) continue;
        RecordedOperation next = shown(operation, marks, now);
        if (const auto group = index.find(operation.group); group != index.end()) next.group = group->second;
        view.operations.push_back(std::move(next));
    }
    std::ranges::sort(view.operations, {}, &RecordedOperation::id);
    pass_waits_on(view);
    if (max_operations > 0) drop_older(view, max_operations);
    return view;
}

}  // namespace ddprun::agent
