#pragma once
// ScatterStream: one rank's slice of a reduce-scatter between nodes, in pieces: each node sends to every other one its
// sums of what that one is to get, and adds up what it gets itself, in node order. Nothing that is sent waits for
// anything that comes; of what comes, kDepth pieces may be ahead of the slowest peer.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker_lib/src/native/collectives.hpp"
#include "worker_lib/src/native/partition.hpp"
#include "worker_lib/src/native/stream.hpp"

namespace ddp::detail {

/// What is added up and where it goes.
class ScatterSums {
public:
    virtual ~ScatterSums() = default;
    /// Elements of what we reduce for a node.
    [[nodiscard]] virtual std::size_t size(std::size_t node) const = 0;
    /// The sums over our own node of elements `range` of that: where they lie already, or made in `memory`.
    [[nodiscard]] virtual const std::byte* sums(std::size_t node, Range range, std::byte* memory) const = 0;
    /// Adds up all nodes' sums, by node, of elements `range` of our own node's; `memory` holds as many accumulators.
    virtual void store(Range range, std::span<const void* const> sums, std::byte* memory) const = 0;
};

class ScatterStream final : public Stream {
public:
    /// `width`: bytes of an accumulator. `opening`: everybody sends to everybody, be it nothing, so that the nodes
    /// compare what was called. `step`: of the first message.
    ScatterStream(const Team& team, const ScatterSums& sums, std::size_t width, bool opening, std::uint32_t step);

    /// Ranks of the peers, in the order of their nodes, and the first step after the slice: the same on all nodes.
    [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }
    [[nodiscard]] std::uint32_t next_step() const { return step_ + static_cast<std::uint32_t>(most_pieces_); }

    [[nodiscard]] NextOut next_out(std::size_t peer) override;
    [[nodiscard]] NextIn next_in(std::size_t peer) override;
    void sent(std::size_t /*peer*/) override {}
    void received(std::size_t peer) override;

private:
    struct Peer {
        std::size_t node = 0;
        std::size_t given = 0;     ///< pieces for it that Links has got
        std::size_t expected = 0;  ///< from it
        std::size_t come = 0;
    };
    [[nodiscard]] Range piece(std::size_t node, std::size_t number) const;
    [[nodiscard]] std::size_t pieces(std::size_t node) const;
    [[nodiscard]] std::size_t messages(std::size_t node) const;
    [[nodiscard]] std::byte* inbox(std::size_t number, std::size_t node) const;
    void combine_what_is_there();

    const ScatterSums& sums_;
    const std::size_t width_;
    const bool opening_;
    const std::uint32_t step_;
    const std::size_t nodes_;
    const std::size_t own_;
    const std::size_t chunk_;  ///< the most elements of a message
    std::size_t most_pieces_ = 1;
    std::vector<Peer> peers_;
    std::vector<int> ranks_;
    std::vector<const void*> parts_;
    std::span<std::byte> outbox_;  ///< a chunk for every node: what is being sent; of the own one, where sums are made
    std::span<std::byte> inbox_;   ///< kDepth times the same; of the own node, where results are made
    std::size_t combined_ = 0;
};

}  // namespace ddp::detail
