#pragma once
// The collectives of the native backend, over the memory of a node and the links between nodes. Their reasons are in
// docs/design/004-native-backend.md. All are run by whoever holds the group's lock for
// running; all throw ddp::Error, and then the group is unusable.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "worker_lib/src/native/all_reduce_rules.hpp"
#include "worker_lib/src/native/links.hpp"
#include "worker_lib/src/native/member.hpp"
#include "worker_lib/src/native/node.hpp"
#include "worker_lib/src/native/staging_choice.hpp"

namespace ddp::detail {

/// Pieces in which buffers pass through slots inside a node: small enough for the second-level cache.
inline constexpr std::size_t kLocalPieceBytes = 1u << 20;
static_assert(kLocalPieceBytes <= kStagingBytes);
/// And between nodes: two of these fit a slot, so that the next one is there while this one is under way. The same on
/// all nodes, whether a node stages or not.
inline constexpr std::size_t kWindowBytes = kStagingBytes / 2;
/// What an all-reduce inside a node leaves for peers begins here in a slot. They may still be taking it when the owner
/// stages the first piece of its next operation, whichever that is.
inline constexpr std::size_t kResultOffset = 1u << 20;
static_assert(kLocalPieceBytes <= kResultOffset, "what is staged before the ranks meet must not reach the results");

/// Memory that only grows, and keeps its pages from operation to operation: fresh ones would cost a fault each.
class Scratch {
public:
    [[nodiscard]] std::span<std::byte> first(std::size_t bytes) {
        if (memory_.size() < bytes) memory_.resize(bytes);
        return std::span(memory_).first(bytes);
    }

private:
    std::vector<std::byte> memory_;
};

/// What operations need besides the buffers.
struct OperationScratch {
    Scratch sums;                      ///< between nodes: accumulators of our node
    Scratch inbox;                     ///< other nodes' accumulators
    std::vector<const void*> sources;  ///< what a kernel reads inside a node
    std::vector<void*> outputs;        ///< and where it writes
    bool staging_prepared = false;     ///< Segment::prepare_staging() has been called
    StagingChoice staging;
};

/// With whom a rank works together, and with what.
struct Team {
    const Topology& topology;
    Node& node;
    Links* links = nullptr;  ///< null on ranks that talk to no other node
    OperationScratch& scratch;
    const AllReduceRules& rules;
    const std::vector<Member>& members;  ///< by rank

    [[nodiscard]] std::size_t nodes() const { return topology.nodes.size(); }
    /// Leaders take part in every operation between nodes, so that every mismatch is seen.
    [[nodiscard]] bool is_leader() const { return links != nullptr && topology.own_index == 0; }
};

/// One of the own rank's buffers in an operation. A foreign one, outside the heap, passes through the staging slot
/// piece by piece.
struct OwnBuffer {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::optional<std::uint64_t> heap_offset;

    [[nodiscard]] bool is_foreign() const { return !heap_offset; }
    [[nodiscard]] std::uint64_t place() const { return heap_offset.value_or(Places::kForeign); }
    void copy_out_to(std::byte* slot, std::size_t first, std::size_t size) const;
    void copy_in_from(const std::byte* slot, std::size_t first, std::size_t size) const;
};

/// Both of them. In place they are the same, or overlap as the header of ProcessGroup allows.
struct OwnBuffers {
    OwnBuffer input;
    OwnBuffer output;
};

/// How far an operation inside a node is.
enum class Step : std::uint8_t {
    kNone,
    kOpened,   ///< Node::open()
    kReduced,  ///< the own part is done, but a rank gave up before: it will end with an error
    kArrived,  ///< at its last barrier: peers need nothing more of this rank
    kDone
};

/// Up to this size, the thread that calls an all-reduce may carry it out itself: to wake another takes longer.
inline constexpr std::size_t kAtOnceBytes = 64u << 10;

/// The own part of an all-reduce inside a node that this rank has joined, up to kArrived or kReduced. Only of up to
/// kAtOnceBytes, and of own buffers that are not foreign. Allocates nothing where `scratch` has room for all ranks.
[[nodiscard]] Step reduce_and_arrive(const Team& team, const Operation& operation, const OwnBuffers& own) noexcept;

/// All-reduce, and reduce: the same but for who gets the result.
void all_reduce(const Team& team, const Operation& operation, const OwnBuffers& own, Step step);
void reduce_scatter(const Team& team, const Operation& operation, const OwnBuffers& own);
/// What only moves bytes, whichever ranks from and to.
void move_blocks(const Team& team, const Operation& operation, const OwnBuffers& own);
void broadcast(const Team& team, const Operation& operation, const OwnBuffer& own);
void barrier(const Team& team, const Operation& operation);

/// Whichever of them the operation is, from `step` on.
void run_collective(const Team& team, const Operation& operation, const OwnBuffers& own, Step step);

}  // namespace ddp::detail
