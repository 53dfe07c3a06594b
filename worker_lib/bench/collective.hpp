#pragma once
// The collectives as nccl-tests defines them, and those that it does not have (parts of different sizes, barrier): how
// their sizes are counted and how they are called.

#include <array>
#include <cstddef>
#include <string_view>

#include "ddp/process_group.hpp"
#include "ddp/types.hpp"

namespace ddp::bench {

enum class Collective : std::uint8_t {
    kAllReduce,
    kBroadcast,
    kReduce,
    kAllGather,
    kReduceScatter,
    kGather,
    kScatter,
    kAllToAll,
    kSendRecv,  ///< to the next rank, from the one before
    kAllGatherV,
    kGatherV,
    kScatterV,
    kAllToAllV,
    kBarrier,
};
inline constexpr std::array kAllCollectives{Collective::kAllReduce,  Collective::kBroadcast,     Collective::kReduce,
                                            Collective::kAllGather,  Collective::kReduceScatter, Collective::kGather,
                                            Collective::kScatter,    Collective::kAllToAll,      Collective::kSendRecv,
                                            Collective::kAllGatherV, Collective::kGatherV,       Collective::kScatterV,
                                            Collective::kAllToAllV,  Collective::kBarrier};

[[nodiscard]] std::string_view name_of(Collective collective);
[[nodiscard]] constexpr bool reduces(Collective c) {
    return c == Collective::kAllReduce || c == Collective::kReduce || c == Collective::kReduceScatter;
}
[[nodiscard]] constexpr bool has_root(Collective c) {
    return c == Collective::kBroadcast || c == Collective::kReduce || c == Collective::kGather ||
           c == Collective::kScatter || c == Collective::kGatherV || c == Collective::kScatterV;
}
/// Returns whether the ranks' parts differ in size: rank r has r + 1 shares of the whole, the last one also the rest.
[[nodiscard]] constexpr bool has_different_parts(Collective c) {
    return c == Collective::kAllGatherV || c == Collective::kGatherV || c == Collective::kScatterV ||
           c == Collective::kAllToAllV;
}
/// Return whether each rank contributes a part of the whole, and whether each receives one.
[[nodiscard]] constexpr bool gathers(Collective c) {
    return c == Collective::kAllGather || c == Collective::kGather || c == Collective::kAllGatherV ||
           c == Collective::kGatherV;
}
[[nodiscard]] constexpr bool splits(Collective c) {
    return c == Collective::kReduceScatter || c == Collective::kScatter || c == Collective::kScatterV;
}
/// Returns whether the call has a form in which input and output are the same memory.
[[nodiscard]] constexpr bool has_in_place(Collective c) {
    return c != Collective::kAllToAll && c != Collective::kAllToAllV && c != Collective::kSendRecv &&
           c != Collective::kBarrier;
}
/// Returns whether each rank has an equal part of the whole, so that counts are rounded to a whole number of parts.
[[nodiscard]] constexpr bool has_equal_parts(Collective c) {
    return c == Collective::kAllGather || c == Collective::kReduceScatter || c == Collective::kGather ||
           c == Collective::kScatter || c == Collective::kAllToAll;
}
/// Returns whether the call has a form in which input and output are different memory.
[[nodiscard]] constexpr bool has_out_of_place(Collective c) { return c != Collective::kBroadcast; }

/// One row of the table for one rank. `count` is the larger side's: the whole, if a rank has only a part. (nccl-tests
/// prints the part's count for all_gather, reduce_scatter, gather, scatter and alltoall.)
struct Call {
    Collective collective = Collective::kAllReduce;
    std::size_t count = 0;
    DType dtype = DType::F32;
    ReduceOp op = ReduceOp::Sum;
    int root = 0;
    bool in_place = false;
    int rank = 0;
    int ranks = 1;

    /// Returns the elements of rank r's part; for all_to_all_v, of the part for the r-th rank after the sender.
    [[nodiscard]] std::size_t part(int r) const;
    [[nodiscard]] std::size_t part() const { return part(rank); }
    /// Returns the elements of all parts of the ranks before r.
    [[nodiscard]] std::size_t offset(int r) const;
    [[nodiscard]] int next() const { return (rank + 1) % ranks; }
    [[nodiscard]] int previous() const { return (rank + ranks - 1) % ranks; }
    [[nodiscard]] std::size_t in_count() const;
    [[nodiscard]] std::size_t out_count() const;  ///< 0: this rank has no output
};

/// Returns busbw / algbw: the least bytes that each rank's link has to carry, as a share of the size. Source:
/// nccl-tests, doc/PERFORMANCE.md. If parts differ, it is the factor of the form with equal parts.
[[nodiscard]] double bus_factor(Collective collective, int ranks);

/// The buffers of a call. In place one contains the other.
struct Buffers {
    Buffer in;
    Buffer out;
};
/// Returns the buffers of a call. `input` has room for in_count(), `output` for the larger of both. In place only
/// `output` is used.
[[nodiscard]] Buffers buffers_of(const Call& call, void* input, void* output, Device device);
[[nodiscard]] Work start(ProcessGroup& group, const Call& call, const Buffers& buffers, Stream stream = {});

}  // namespace ddp::bench
