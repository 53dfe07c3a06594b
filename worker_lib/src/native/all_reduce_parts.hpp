#pragma once
// What all_reduce and reduce are inside a node (all_reduce.cpp) and between nodes (all_reduce_network.cpp) alike; and
// how the latter passes foreign buffers through the staging slots, and knows from where to take elements and whom to
// give them.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "worker_lib/src/native/collectives.hpp"
#include "worker_lib/src/native/reduce.hpp"

namespace ddp::detail {

class AllReduceParts {
public:
    AllReduceParts(const Team& team, const Operation& operation, const OwnBuffers& own);

    /// Meets the ranks of the node. `streams`: Places::streams.
    void meet(bool streams = false) const;
    [[nodiscard]] bool receives() const { return receives_; }
    [[nodiscard]] std::size_t bytes() const { return operation.buffer.bytes(); }

    /// Meets, and calls reduce(first, size) for pieces of `piece` elements. Once for no elements at all, too.
    template <typename Reduce>
    void in_pieces(std::size_t piece, Reduce reduce) const;

    /// Everybody's elements from `begin` on, counted from `first`, as the list that the kernels take.
    [[nodiscard]] std::vector<const void*> sources(std::size_t first, std::size_t begin) const;
    /// Where those of this node who get the result take it, the own rank first.
    [[nodiscard]] std::vector<void*> outputs(std::size_t first, std::size_t begin) const;
    /// The first of these places, null if there is none; and from there to all the others.
    [[nodiscard]] std::byte* landing(std::size_t first, std::size_t begin) const;
    void spread(std::size_t first, std::size_t begin, std::size_t size) const;

    [[nodiscard]] bool gets_result(int rank) const {
        return operation.kind != OpKind::kReduce || rank == operation.root;
    }

    const Team& team;
    const Operation& operation;
    const OwnBuffers& own;
    const Reduction& reduction;
    const std::size_t width;  ///< bytes of an element
    const std::size_t grain;  ///< elements of a pair of cache lines
    const double scale;       ///< of the sum

private:
    void stage(std::size_t first, std::size_t size) const;
    [[nodiscard]] std::byte* place_of(int index, Side side, std::size_t first) const;

    const bool receives_;
    const bool alone_;            ///< on its node: nothing needs to be staged
    std::vector<int> receivers_;  ///< local indices of those who get the result; the own one comes first
};

template <typename Reduce>
void AllReduceParts::in_pieces(std::size_t piece, Reduce reduce) const {
    const std::size_t count = operation.buffer.count;
    const bool stages_input = own.input.is_foreign() && !alone_;
    if (stages_input) stage(0, std::min(count, piece));
    meet();
    const bool staged = !alone_ && (team.node.any_foreign(Side::kInput) || team.node.any_foreign(Side::kOutput));

    std::size_t first = 0;
    do {  // once for no elements at all, too: leaders on other nodes expect to hear from ours
        const std::size_t size = std::min(piece, count - first);
        if (first > 0 && staged) {
            if (stages_input) stage(first, size);
            team.node.barrier(operation);
        }
        reduce(first, size);
        if (staged || first + size == count) team.node.barrier(operation);
        if (receives_ && own.output.is_foreign() && !alone_)
            own.output.copy_in_from(team.node.staging(team.node.own_index()), first * width, size * width);
        first += size;
    } while (first < count);
}

/// Between nodes: all_reduce() of a team of several.
void all_reduce_across(const Team& team, const Operation& operation, const OwnBuffers& own);

}  // namespace ddp::detail
