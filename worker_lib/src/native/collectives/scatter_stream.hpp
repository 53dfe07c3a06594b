#pragma once
// ScatterStream: the messages of one rank's slice in a reduce-scatter between nodes, by pairwise exchange: each node
// sends to every other the sums for that node, and adds up its own sums with those that it receives, in node order. No
// message that is sent depends on one that is received. A peer may be kDepth pieces ahead of the slowest.
//
// An operation owns it. Links calls it on the thread that runs the operation.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker_lib/src/native/collectives/collectives.hpp"
#include "worker_lib/src/native/net/message_stream.hpp"
#include "worker_lib/src/util/partition.hpp"

namespace ddp::detail {

/// Makes the sums of a reduce-scatter and stores the results.
class ScatterSums {
public:
    virtual ~ScatterSums() = default;
    /// Returns how many elements this rank reduces for a node.
    [[nodiscard]] virtual std::size_t size(std::size_t node) const = 0;
    /// Returns the own node's sums of elements `range` of those, made in `memory` unless they exist already.
    [[nodiscard]] virtual const std::byte* sums(std::size_t node, Range range, std::byte* memory) const = 0;
    /// Adds up and stores elements `range` for the own node. `sums` by node; `memory` has room for the accumulators.
    virtual void store(Range range, std::span<const void* const> sums, std::byte* memory) const = 0;
};

class ScatterStream final : public MessageStream {
public:
    /// `width`: bytes of an accumulator. `opening`: every node sends to every other, even an empty message, so that the
    /// nodes compare their calls. `step`: of the first message.
    ScatterStream(const CollectiveContext& context, const ScatterSums& sums, std::size_t width, bool opening,
                  std::uint32_t step);

    /// Return the ranks of the peers, in the order of their nodes, and the first step after this slice, which is the
    /// same on all nodes.
    [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }
    [[nodiscard]] std::uint32_t next_step() const { return step_ + static_cast<std::uint32_t>(max_pieces_); }

    [[nodiscard]] NextOut next_out(std::size_t peer) override;
    [[nodiscard]] NextIn next_in(std::size_t peer) override;
    void sent(std::size_t /*peer*/) override {}
    void received(std::size_t peer) override;

private:
    struct Peer {
        std::size_t node = 0;
        std::size_t given = 0;     ///< pieces for it that Links has taken
        std::size_t expected = 0;  ///< pieces from it that Links has asked for
        std::size_t arrived = 0;
    };
    [[nodiscard]] Range piece(std::size_t node, std::size_t number) const;
    [[nodiscard]] std::size_t pieces(std::size_t node) const;
    [[nodiscard]] std::size_t messages(std::size_t node) const;
    [[nodiscard]] std::byte* inbox(std::size_t number, std::size_t node) const;
    void combine_arrived();

    const ScatterSums& sums_;
    const std::size_t width_;
    const bool opening_;
    const std::uint32_t step_;
    const std::size_t nodes_;
    const std::size_t own_;
    const std::size_t message_elements_;  ///< maximum elements of a message
    std::size_t max_pieces_ = 1;
    std::vector<Peer> peers_;
    std::vector<int> ranks_;
    std::vector<const void*> parts_;
    std::span<std::byte> outbox_;  ///< a message to every node; the own one's holds its sums
    std::span<std::byte> inbox_;   ///< kDepth times the same; the own node's message holds the results
    std::size_t combined_ = 0;
};

}  // namespace ddp::detail
