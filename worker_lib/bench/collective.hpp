#pragma once
// The collectives as nccl-tests knows them: how their sizes are counted, how they are called, what has to come out.

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
};
inline constexpr std::array kAllCollectives{Collective::kAllReduce, Collective::kBroadcast,     Collective::kReduce,
                                            Collective::kAllGather, Collective::kReduceScatter, Collective::kGather,
                                            Collective::kScatter,   Collective::kAllToAll,      Collective::kSendRecv};

[[nodiscard]] std::string_view name_of(Collective collective);
[[nodiscard]] constexpr bool reduces(Collective c) {
    return c == Collective::kAllReduce || c == Collective::kReduce || c == Collective::kReduceScatter;
}
[[nodiscard]] constexpr bool has_root(Collective c) {
    return c == Collective::kBroadcast || c == Collective::kReduce || c == Collective::kGather ||
           c == Collective::kScatter;
}
/// Whether the call has a form in which input and output are the same memory.
[[nodiscard]] constexpr bool has_in_place(Collective c) {
    return c != Collective::kAllToAll && c != Collective::kSendRecv;
}
/// Whether each rank has a part of the whole, so that counts are rounded to a whole number of parts.
[[nodiscard]] constexpr bool has_parts(Collective c) {
    return c != Collective::kAllReduce && c != Collective::kBroadcast && c != Collective::kReduce &&
           c != Collective::kSendRecv;
}
/// And one in which they are not.
[[nodiscard]] constexpr bool has_out_of_place(Collective c) { return c != Collective::kBroadcast; }

/// One row of the table for one rank. `count` is that of the larger side: the whole where a rank has only a part.
struct Call {
    Collective collective = Collective::kAllReduce;
    std::size_t count = 0;
    DType dtype = DType::f32;
    ReduceOp op = ReduceOp::Sum;
    int root = 0;
    bool in_place = false;
    int rank = 0;
    int ranks = 1;

    [[nodiscard]] std::size_t part() const { return count / static_cast<std::size_t>(ranks); }
    [[nodiscard]] int next() const { return (rank + 1) % ranks; }
    [[nodiscard]] int previous() const { return (rank + ranks - 1) % ranks; }
    [[nodiscard]] std::size_t in_count() const;
    [[nodiscard]] std::size_t out_count() const;  ///< 0: this rank gets nothing
};

/// Bytes over the wire that each rank's link has to carry at least, as a share of the size: what busbw multiplies
/// algbw by. Source: nccl-tests, doc/PERFORMANCE.md.
[[nodiscard]] double bus_factor(Collective collective, int ranks);

/// The buffers of a call: `memory` is the output's and, in place, also where the input lies.
struct Buffers {
    Buffer in;
    Buffer out;
};
/// `input` has room for in_count(), `output` for the larger of both. In place only `output` is used.
[[nodiscard]] Buffers place(const Call& call, void* input, void* output, Device device);
[[nodiscard]] Work start(ProcessGroup& group, const Call& call, const Buffers& buffers);

}  // namespace ddp::bench
