// All-reduce and reduce inside a node: each rank reduces its slice of everybody's input and stores the result to
// everybody's output, or the root's only: one pass over the memory, two barriers.

#include <algorithm>
#include <array>

#include "worker_lib/src/native/all_reduce_parts.hpp"
#include "worker_lib/src/native/partition.hpp"

namespace ddp::detail {

namespace {

/// What is reduced and stored at a time: with a few ranks' worth of it, it stays in the first-level cache.
constexpr std::size_t kBlockBytes = 8192;

void reduce_and_store(const AllReduceParts& parts, std::size_t first, Range range) {
    const Reduction& reduction = parts.reduction;
    alignas(kSeparation) std::array<std::byte, kBlockBytes> sums;
    alignas(kSeparation) std::array<std::byte, kBlockBytes> rounded;
    std::byte* const elements = parts.width == reduction.accumulator_bytes ? sums.data() : rounded.data();
    auto from = parts.sources(first, range.begin);
    const std::size_t block = kBlockBytes / reduction.accumulator_bytes;
    for (std::size_t begin = range.begin; begin < range.end; begin += block) {
        const std::size_t size = std::min(block, range.end - begin);
        reduction.reduce(from.data(), from.size(), size, sums.data());
        reduction.finish(sums.data(), size, parts.scale, elements);
        parts.store(elements, first, begin, size);
        for (const void*& source : from) source = static_cast<const std::byte*>(source) + size * parts.width;
    }
}

}  // namespace

void all_reduce(const Team& team, const Operation& operation, const OwnBuffers& own) {
    if (team.nodes() > 1) return all_reduce_across(team, operation, own);
    const AllReduceParts parts(team, operation, own);
    const auto ranks = static_cast<std::size_t>(team.node.size());
    const auto index = static_cast<std::size_t>(team.node.own_index());
    parts.in_pieces(kLocalPieceBytes / parts.width, true, [&](std::size_t first, std::size_t size) {
        const Range mine = part(size, ranks, index, parts.grain);
        if (ranks > 1 || own.input.data != own.output.data) reduce_and_store(parts, first, mine);
    });
}

}  // namespace ddp::detail
