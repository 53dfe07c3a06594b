#pragma once
// What all_reduce and reduce are inside a node (all_reduce.cpp) and between nodes (all_reduce_network.cpp) alike; and
// how the latter passes foreign buffers through the staging slots, and knows from where to take elements and whom to
// give them.

#include <cstddef>
#include <vector>

#include "worker_lib/src/native/collectives.hpp"
#include "worker_lib/src/native/partition.hpp"
#include "worker_lib/src/native/reduce.hpp"

namespace ddp::detail {

class AllReduceParts {
public:
    AllReduceParts(const Team& team, const Operation& operation, const OwnBuffers& own);

    /// Meets the ranks of the node. `streams`: Places::streams.
    void meet(bool streams = false) const;
    [[nodiscard]] bool receives() const { return receives_; }
    [[nodiscard]] std::size_t bytes() const { return operation.buffer.bytes(); }

    /// Whether anybody's buffers pass through slots between nodes. After meet().
    [[nodiscard]] bool any_staged() const;
    /// The own input to the slot, and the own result from it, if they are foreign. Elements `window` of the buffer.
    void stage(Range window) const;
    void take(Range window) const;

    /// Everybody's elements from `begin` on, as the list that the kernels take; up to the end of the window.
    [[nodiscard]] std::vector<const void*> sources(std::size_t begin) const;
    /// Where those of this node who get the result take it, the own rank first.
    [[nodiscard]] std::vector<void*> outputs(std::size_t begin) const;
    /// The first of these places, null if there is none; and from there to all the others.
    [[nodiscard]] std::byte* landing(std::size_t begin) const;
    void spread(Range range) const;

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
    [[nodiscard]] std::byte* place_of(int index, Side side, std::size_t element) const;

    const bool receives_;
    const bool alone_;            ///< on its node: nothing needs to be staged
    std::vector<int> receivers_;  ///< between nodes: local indices of those who get the result; the own one comes first
};

/// Between nodes: all_reduce() of a team of several.
void all_reduce_across(const Team& team, const Operation& operation, const OwnBuffers& own);

}  // namespace ddp::detail
