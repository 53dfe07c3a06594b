#pragma once
// The collectives of the native backend, over the shared memory of a node and the links between nodes. Reasons:
// docs/design/004-native-backend.md. The backend calls them on the thread that runs the group's operations. All throw
// ddp::Error, and then the group is unusable.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "worker_lib/src/native/collectives/all_reduce_rules.hpp"
#include "worker_lib/src/native/net/links.hpp"
#include "worker_lib/src/native/node/node.hpp"
#include "worker_lib/src/native/protocol/member.hpp"
#include "worker_lib/src/tuning/staging_choice.hpp"

namespace ddp::detail {

/// Bytes of the pieces in which buffers pass through staging slots inside a node: small enough for the second-level
/// cache.
inline constexpr std::size_t kLocalPieceBytes = 1u << 20;
static_assert(kLocalPieceBytes <= kStagingBytes);
/// Bytes of a window between nodes. Two fit a slot, so that the next one is staged while this one is sent. The
/// same on all nodes, whether a node stages or not.
inline constexpr std::size_t kWindowBytes = kStagingBytes / 2;
/// Bytes of half a slot: pieces of the owner's input lie in the first half where a collective needs both.
inline constexpr std::size_t kHalfSlot = kStagingBytes / 2;
/// Offset in a slot of the results of an all-reduce inside a node. Peers may still be reading them when the owner
/// stages the first piece of its next operation.
inline constexpr std::size_t kResultOffset = 1u << 20;
static_assert(kLocalPieceBytes <= kResultOffset, "data staged before the ranks meet must not reach the results");

/// Memory that only grows and keeps its pages from operation to operation: new pages would cost a fault each.
class Scratch {
public:
    [[nodiscard]] std::span<std::byte> first(std::size_t bytes) {
        if (memory_.size() < bytes) memory_.resize(bytes);
        return std::span(memory_).first(bytes);
    }

private:
    std::vector<std::byte> memory_;
};

/// Memory and state that operations keep besides the buffers. Used by the thread that runs the group's operations.
struct OperationScratch {
    Scratch sums;                      ///< between nodes: accumulators of the own node
    Scratch inbox;                     ///< other nodes' accumulators
    std::vector<const void*> sources;  ///< buffers that a kernel reads inside a node
    std::vector<void*> outputs;        ///< buffers that it writes
    bool staging_prepared = false;     ///< Segment::prepare_staging() has been called
    StagingChoice staging;
};

/// The group of a collective, its ranks and their connections, and memory to work in. The backend
/// makes one per call.
struct CollectiveContext {
    const Topology& topology;
    Node& node;
    Links* links = nullptr;  ///< null on ranks without links to other nodes
    OperationScratch& scratch;
    const AllReduceRules& rules;
    const std::vector<Member>& members;  ///< by rank

    [[nodiscard]] std::size_t nodes() const { return topology.nodes.size(); }
    /// Returns whether this rank leads its node, in a group of several nodes; false in a group of one node. Leaders
    /// take part in every operation between nodes, even without data of their own, so that every mismatch is detected.
    [[nodiscard]] bool is_leader() const { return links != nullptr && topology.own_index == 0; }
};

/// A buffer of the own rank in an operation. A foreign buffer, outside the heap, passes through the staging slot piece
/// by piece.
struct OwnBuffer {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::optional<std::uint64_t> heap_offset;

    [[nodiscard]] bool is_foreign() const { return !heap_offset; }
    [[nodiscard]] std::uint64_t offset() const { return heap_offset.value_or(BufferOffsets::kForeign); }
    void copy_out_to(std::byte* slot, std::size_t first, std::size_t size) const;
    void copy_in_from(const std::byte* slot, std::size_t first, std::size_t size) const;
};

/// Both buffers of the own rank. In place they are the same, or overlap as the header of ProcessGroup allows.
struct OwnBuffers {
    OwnBuffer input;
    OwnBuffer output;
};

/// The last step that this rank has taken in an operation inside a node.
enum class Step : std::uint8_t {
    kNone,
    kOpened,   ///< Meetings::open() has returned
    kReduced,  ///< the own part is done, but a rank gave up before, so it will end with an error
    kArrived,  ///< arrived at the last barrier: peers need nothing more of this rank
    kDone
};

/// Up to this size the calling thread may execute an all-reduce itself, because waking another takes longer.
inline constexpr std::size_t kImmediateBytes = 64u << 10;

/// Executes the own part of an all-reduce inside a node that this rank has joined, and returns kArrived or kReduced.
/// Only for up to kImmediateBytes and local buffers. Allocates nothing if `scratch` has room for all ranks.
[[nodiscard]] Step reduce_and_arrive(const CollectiveContext& context, const Operation& operation,
                                     const OwnBuffers& own) noexcept;

/// Executes all-reduce and reduce, which differ only in the ranks that get the result.
void all_reduce(const CollectiveContext& context, const Operation& operation, const OwnBuffers& own, Step step);
/// Executes the same in a group with several nodes. Called by all_reduce().
void all_reduce_across(const CollectiveContext& context, const Operation& operation, const OwnBuffers& own);
void reduce_scatter(const CollectiveContext& context, const Operation& operation, const OwnBuffers& own);
/// Executes all-gather, gather, scatter and all-to-all, with equal or different counts.
void move_blocks(const CollectiveContext& context, const Operation& operation, const OwnBuffers& own);
void broadcast(const CollectiveContext& context, const Operation& operation, const OwnBuffer& own);
void barrier(const CollectiveContext& context, const Operation& operation);

/// Executes the collective of `operation`, from `step` on.
void run_collective(const CollectiveContext& context, const Operation& operation, const OwnBuffers& own, Step step);

}  // namespace ddp::detail
