#pragma once
// AllReduceParts: the parts that an all-reduce or reduce inside a node (all_reduce.cpp) and between nodes
// (all_reduce_network.cpp) have in common: kernel, sizes, the ranks that get the result and, between nodes, the
// addresses of elements, with foreign buffers in staging slots. One per operation, used by the thread that runs it.

#include <cstddef>
#include <vector>

#include "worker_lib/src/kernels/reduce.hpp"
#include "worker_lib/src/native/collectives/collectives.hpp"
#include "worker_lib/src/util/partition.hpp"

namespace ddp::detail {

class AllReduceParts {
public:
    AllReduceParts(const CollectiveContext& context, const Operation& operation, const OwnBuffers& own);

    /// Calls Meetings::meet() for this operation. `streams`: BufferOffsets::streams.
    void meet(bool streams = false) const;
    [[nodiscard]] bool receives() const { return receives_; }
    [[nodiscard]] std::size_t bytes() const { return operation.buffer.bytes(); }

    /// Returns whether any rank's buffers pass through slots between nodes. After meet().
    [[nodiscard]] bool any_staged() const;
    /// Copy elements `window` of the own input to the slot, and of the own result from it, if they are foreign.
    void stage(Range window) const;
    void take(Range window) const;

    /// Returns the addresses of every local rank's elements from `begin` on, in rank order. Valid up to the end of the
    /// window.
    [[nodiscard]] std::vector<const void*> sources(std::size_t begin) const;
    /// Returns the addresses of the results of the local ranks that get them, the own rank first.
    [[nodiscard]] std::vector<void*> outputs(std::size_t begin) const;
    /// Returns the first of these addresses, or null. spread() copies from there to all the others.
    [[nodiscard]] std::byte* landing(std::size_t begin) const;
    void spread(Range range) const;

    [[nodiscard]] bool gets_result(int rank) const {
        return operation.kind != OpKind::kReduce || rank == operation.root;
    }

    const CollectiveContext& context;
    const Operation& operation;
    const OwnBuffers& own;
    const Reduction& reduction;
    const std::size_t width;  ///< bytes of an element
    const std::size_t grain;  ///< elements of a pair of cache lines
    const double scale;       ///< of the sum

private:
    [[nodiscard]] std::byte* address_of(int index, Side side, std::size_t element) const;

    const bool receives_;
    const bool alone_;            ///< the only rank of its node, so nothing is staged
    std::vector<int> receivers_;  ///< between nodes: local indices of the ranks that get the result, the own one first
};

}  // namespace ddp::detail
