#pragma once
// Defines the content of a worker's flight record (common/flight_record_layout.hpp) as plain values. Its agent reads it
// and sends it to the daemon, which sends it to ddpctl. Times are durations before the moment of reading. Also
// describes operations, and the last activity of a worker, as text. Pure.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"

namespace ddprun::protocol {

/// Ranks of the job: `first`, `first + stride`, …, `count` of them.
struct RankRun {
    int first = 0;
    int count = 0;
    int stride = 1;
    friend bool operator==(const RankRun&, const RankRun&) = default;
};

/// A group as the flight record of one of its members shows it.
struct RecordedGroup {
    std::string name;  ///< the same on all its members
    int rank = 0;      ///< of this worker in it
    int size = 1;
    std::vector<RankRun> members;  ///< by rank in the group; empty: they have too many runs for the flight record
    bool live = true;
    std::uint64_t queued = 0;  ///< the newest collective that was called, 0: none yet
    std::uint64_t started = 0;
    std::uint64_t done = 0;
    std::optional<std::chrono::nanoseconds> aborted_ago = {};  ///< when this rank's program called abort …
    std::uint64_t aborted_after = 0;  ///< … after the call of which operation (its id; only its agent knows that) …
    std::string abort_reason = {};    ///< … and why
    std::optional<std::chrono::nanoseconds> left_ago = {};  ///< when it destroyed the group, which had not failed …
    std::uint64_t left_after = 0;                           ///< … after the call of which operation, as above …
    bool left_by_exception = false;                         ///< … while an exception was being handled
    friend bool operator==(const RecordedGroup&, const RecordedGroup&) = default;
};
/// One entry as a value, with a member for each of its fields.
struct RecordedOperation {
    std::uint64_t id = 0;  ///< over all groups of the worker, in the order of the calls
    int group = -1;        ///< index in FlightRecord::groups; -1: that group is no longer recorded
    std::uint64_t seq = 0;
    std::uint64_t p2p_seq = 0;  ///< 0: a collective
    std::string op;             ///< "all_reduce", "send", …; "arrived": see is_arrival()
    std::string reduce;         ///< "sum", …; empty: it reduces nothing
    std::string dtype;          ///< empty: it moves nothing
    std::string tag;
    int peer = -1;                  ///< root, or the other side, as rank of the group
    std::int64_t transfer_tag = 0;  ///< of a send or receive: both sides have the same
    std::uint64_t count = 0;        ///< elements, as the ranks compare them
    std::uint64_t input_count = 0;
    std::uint64_t output_count = 0;
    std::uint64_t fingerprint = 0;
    std::chrono::nanoseconds queued_ago{0};
    std::chrono::milliseconds timeout{0};  ///< from the call to its deadline; 0: unknown (an older agent)
    std::optional<std::chrono::nanoseconds> started_ago = {};
    std::optional<std::chrono::nanoseconds> ended_ago = {};
    /// When a caller began to wait for it, or for a later collective of its group; empty: it was only posted.
    std::optional<std::chrono::nanoseconds> waited_ago = {};
    bool polled = false;       ///< … by polling: that rank may do something else meanwhile
    bool failed = false;       ///< it ended with an error
    bool timed_out = false;    ///< … because a deadline has passed
    bool mismatch = false;     ///< … because the ranks called different operations
    bool peer_failed = false;  ///< … after another rank: that one was lost, or has reported the error
    /// A rank of the job: its host has acknowledged nothing that this rank sent, for seconds when the operation was in
    /// progress or failed; -1: there is none.
    int unreachable = -1;
    friend bool operator==(const RecordedOperation&, const RecordedOperation&) = default;
};

/// The call of NCCL or of the CUDA driver in which the thread is that runs the operations of the worker's GPU.
struct DeviceCall {
    std::string name;  ///< "ncclAllReduce"; empty: the thread is in no call that takes long
    int group = -1;    ///< index in FlightRecord::groups; -1: unknown
    std::chrono::nanoseconds time{0};
    friend bool operator==(const DeviceCall&, const DeviceCall&) = default;
};

/// A shorter call is not shown: the thread asks the device all the time.
inline constexpr std::chrono::nanoseconds kLongDeviceCall = std::chrono::seconds(1);

/// All that a worker's flight record shows.
struct FlightRecord {
    bool written = false;  ///< by a process of this worker; false: it does not use worker_lib
    std::string phase;     ///< as its program named it; may be empty
    std::chrono::nanoseconds phase_for{0};
    std::uint64_t operations_in_all = 0;
    std::vector<RecordedGroup> groups;          ///< in the order in which they were made
    int hidden_groups = 0;                      ///< for which its flight record has no slot
    std::vector<RecordedOperation> operations;  ///< the newest, and older unfinished ones; oldest first
    int more_unfinished = 0;                    ///< unfinished ones that are not among them
    DeviceCall device_call;
    friend bool operator==(const FlightRecord&, const FlightRecord&) = default;
};

/// Returns "#183 all_reduce sum f32[6572160] 'bucket 3'", as worker_lib's errors name an operation.
[[nodiscard]] std::string describe(const RecordedOperation& operation);

/// Returns what a collective does, without number and tag: "all_reduce sum f32[6572160]".
[[nodiscard]] std::string describe_call(const RecordedOperation& operation);

/// Returns describe() with the group, if that is known: "#183 all_reduce sum f32[4] of group 'world'".
[[nodiscard]] std::string describe(const FlightRecord& view, const RecordedOperation& operation);

/// Returns the current activity of the worker, or its last one: "in #183 all_reduce sum f32[4] 'bucket 3' of group
/// 'world' for 0.3 s; in phase 'eval'". The current one is the operation that it waits for: others progress without it.
/// Empty when the worker has not used the library.
[[nodiscard]] std::string describe_activity(const FlightRecord& view);

/// Returns "ncclAllReduce of group 'world'", the call in which the worker's NCCL thread is; empty: it is in none.
[[nodiscard]] std::string describe_device_call(const FlightRecord& view);

/// Counts the time of that call only up to the end of the process, `ended_ago`. Drops the call if it was short.
void end_device_call(FlightRecord& view, std::chrono::nanoseconds ended_ago);

/// Returns whether a text of describe_activity() names an operation that had not ended.
[[nodiscard]] bool has_operation_under_way(std::string_view activity);

/// Returns whether the entry is not an operation of that worker but a message from `peer` that arrived while the worker
/// waited for another one, and that no receive matched until `ended_ago`. Its numbers are the sender's.
[[nodiscard]] inline bool is_arrival(const RecordedOperation& operation) { return operation.op == "arrived"; }

/// Returns whether the operation waits for the ranks of a new world to arrive (worker_lib's InitWait).
[[nodiscard]] inline bool is_init(const RecordedOperation& operation) { return operation.op == "init_from_env"; }

/// Returns the operation that the worker waits for, which has begun and not ended; null: none. If there are several,
/// returns the oldest collective.
[[nodiscard]] const RecordedOperation* current_operation(const FlightRecord& view);
/// Returns the same of the operations that the worker does not wait for.
[[nodiscard]] const RecordedOperation* under_way(const FlightRecord& view);

/// Returns whether an operation of the worker failed after another rank had failed, and no operation that it called
/// later has succeeded: it did not go on since.
[[nodiscard]] bool failed_after_peer(const FlightRecord& view);

/// Marks the collectives before one that is waited for as waited for: a group performs its collectives in order.
void pass_waits_on(FlightRecord& view);

/// Returns whether the worker has called an operation in the last `time`: then it is not blocked by one that it polls.
[[nodiscard]] bool is_going_on(const FlightRecord& view, std::chrono::nanoseconds time);

/// Returns for how long the worker has waited for `operation` since it began. Empty: the worker does not wait for it.
/// `going_on`: the result of is_going_on().
[[nodiscard]] std::optional<std::chrono::nanoseconds> waits_for(const RecordedOperation& operation, bool going_on);

}  // namespace ddprun::protocol
