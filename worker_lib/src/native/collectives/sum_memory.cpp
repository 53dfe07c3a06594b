#include "worker_lib/src/native/collectives/sum_memory.hpp"

#include <algorithm>

namespace ddp::detail {

SumMemory::SumMemory(const AllReduceParts& parts, const Pieces& pieces, std::size_t message_elements)
    : parts_(parts),
      pieces_(pieces),
      nodes_(parts.context.nodes()),
      width_(parts.reduction.accumulator_bytes),
      in_place_(parts.context.node.ranks.size() == 1 && width_ == parts.width) {
    const std::size_t depth = std::min(kDepth, pieces.number());
    const std::size_t largest = pieces.windows.largest_slice();
    sums_bytes_ = std::min(pieces.max_elements, largest) * width_;
    inbox_bytes_ = std::min(message_elements, largest) * width_;
    if (!in_place_) sums_ = parts.context.scratch.sums.first(depth * sums_bytes_);
    inbox_ = parts.context.scratch.inbox.first(depth * (nodes_ + 1) * inbox_bytes_);
}

const std::byte* SumMemory::sums(std::size_t number, std::size_t element) const {
    if (in_place_) return parts_.own.input.data + element * width_;
    return sums_.data() + number % kDepth * sums_bytes_ + (element - pieces_.at(number).begin) * width_;
}

std::byte* SumMemory::inbox(std::size_t number, std::size_t node) const {
    return inbox_.data() + (number % kDepth * (nodes_ + 1) + node) * inbox_bytes_;
}

std::byte* SumMemory::result(std::size_t number, Range range) const {
    std::byte* const owner = parts_.landing(range.begin);
    return owner != nullptr ? owner : inbox(number, nodes_);
}

}  // namespace ddp::detail
