#pragma once
// Operation: one collective of a group, as GroupImpl passes it to a backend, checked and numbered. Plain values.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"
#include "ddp/buffer.hpp"
#include "ddp/types.hpp"
#include "worker_lib/src/recorder/flight_recorder.hpp"

struct CUgraphExec_st;

namespace ddp::detail {

enum class OpKind : std::uint8_t {
    kAllReduce,
    kBroadcast,
    kBarrier,
    kReduce,
    kReduceScatter,
    kAllGather,
    kAllGatherV,
    kGather,
    kGatherV,
    kScatter,
    kScatterV,
    kAllToAll,
    kAllToAllV,
    kReplay,  ///< of a CUDA graph with operations of the group, see docs/design/040-captured-steps.md
};
inline constexpr OpKind kLastOpKind = OpKind::kReplay;
[[nodiscard]] std::string_view to_string(OpKind kind);
[[nodiscard]] constexpr bool reduces(OpKind kind) {
    return kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kReduceScatter;
}
/// Returns whether an operation of this kind has a buffer.
[[nodiscard]] constexpr bool has_buffer(OpKind kind) { return kind != OpKind::kBarrier && kind != OpKind::kReplay; }
[[nodiscard]] constexpr bool gathers(OpKind kind) { return kind == OpKind::kGather || kind == OpKind::kGatherV; }
[[nodiscard]] constexpr bool scatters(OpKind kind) { return kind == OpKind::kScatter || kind == OpKind::kScatterV; }
/// Returns whether all ranks pass the same list, with the count of each rank's part. kAllToAllV is not such a kind:
/// there each rank passes counts of its own.
[[nodiscard]] constexpr bool shares_counts(OpKind kind) {
    return kind == OpKind::kAllGatherV || kind == OpKind::kGatherV || kind == OpKind::kScatterV;
}
[[nodiscard]] constexpr bool has_root(OpKind kind) {
    return kind == OpKind::kBroadcast || kind == OpKind::kReduce || gathers(kind) || scatters(kind);
}

/// Returns memory that is only read as the input of an Operation or Transfer. A backend does not write to an input,
/// unless it is the output as well.
[[nodiscard]] inline Buffer readable(ConstBuffer in) {
    return {const_cast<void*>(in.data), in.count, in.dtype, in.device};
}

/// One collective, checked. `seq` counts from 1 in its group.
struct Operation {
    OpKind kind = OpKind::kBarrier;
    Buffer buffer;                    ///< the input of this rank, and its output if there is no `output`
    std::optional<Buffer> output;     ///< without data on ranks that get nothing
    std::vector<std::size_t> counts;  ///< kAllToAllV: elements to send to each rank; other V kinds: each rank's part
    std::vector<std::size_t> receive_counts;  ///< kAllToAllV: elements to receive from each rank
    /// The hash of `counts`, if they are the same on all ranks, plus the number of the caller's step, if it has one.
    std::uint64_t counts_hash = 0;
    ReduceOp reduce_op = ReduceOp::Sum;
    int root = 0;
    Stream stream;
    CUgraphExec_st* graph = nullptr;  ///< kReplay
    std::string label;                ///< OpOptions::label
    std::uint64_t seq = 0;
    ddprun::Duration timeout{};  ///< `deadline` is that long after the call
    ddprun::TimePoint deadline;
    RecordEntry record_entry;  ///< its entry in the flight record, which WorkState updates

    [[nodiscard]] const Buffer& result() const { return output ? *output : buffer; }
    /// Returns the buffer whose type and, unless there are `counts`, whose count the ranks compare.
    [[nodiscard]] const Buffer& part() const {
        return kind == OpKind::kReduceScatter || scatters(kind) ? result() : buffer;
    }
    /// Returns the number of elements that the ranks compare; 0 if each has its own.
    [[nodiscard]] std::size_t compared_count() const;
};

/// Returns the form in which errors name an operation: "#183 all_reduce sum f32[6572160] 'bucket 3'".
[[nodiscard]] std::string describe(const Operation& operation);

}  // namespace ddp::detail
