#include "worker_lib/src/native/collectives/block_plan.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ddp::detail {

BlockPlan::BlockPlan(const Operation& operation, int ranks) : BlockPlan(Pattern::kAllGather, ranks) {
    const std::size_t width = size_of(operation.part().dtype);
    switch (operation.kind) {
        case OpKind::kGather:
        case OpKind::kGatherV: pattern_ = Pattern::kGather; break;
        case OpKind::kScatter:
        case OpKind::kScatterV: pattern_ = Pattern::kScatter; break;
        case OpKind::kAllToAll: {
            const std::vector<std::uint64_t> sends(ranks_ * ranks_, operation.buffer.count / ranks_);
            *this = all_to_all(sends, ranks, width);
            return;
        }
        default: break;
    }
    root_ = operation.root;
    std::vector<std::size_t> parts(ranks_, operation.part().count * width);
    for (std::size_t rank = 0; rank < operation.counts.size(); ++rank) parts[rank] = operation.counts[rank] * width;
    set_parts(std::move(parts));
}

BlockPlan BlockPlan::all_gather(std::size_t bytes, int ranks) {
    BlockPlan plan(Pattern::kAllGather, ranks);
    plan.set_parts(std::vector<std::size_t>(plan.ranks_, bytes));
    return plan;
}

BlockPlan BlockPlan::all_to_all(std::span<const std::uint64_t> sends, int ranks, std::size_t width) {
    BlockPlan plan(Pattern::kAllToAll, ranks);
    std::vector<std::size_t> filled(plan.ranks_);  // of each destination's output
    for (std::size_t source = 0; source < plan.ranks_; ++source) {
        std::size_t taken = 0;
        for (std::size_t destination = 0; destination < plan.ranks_; ++destination) {
            const std::size_t bytes = sends[source * plan.ranks_ + destination] * width;
            plan.bytes_.push_back(bytes);
            plan.from_.push_back(taken);
            plan.to_.push_back(filled[destination]);
            taken += bytes;
            filled[destination] += bytes;
        }
    }
    return plan;
}

void BlockPlan::set_parts(std::vector<std::size_t> bytes) {
    std::vector<std::size_t> offsets(bytes.size());
    std::exclusive_scan(bytes.begin(), bytes.end(), offsets.begin(), std::size_t{0});
    const std::vector<std::size_t> starts(bytes.size());
    from_ = pattern_ == Pattern::kScatter ? offsets : starts;
    to_ = pattern_ == Pattern::kScatter ? starts : offsets;
    bytes_ = std::move(bytes);
}

std::vector<Block> BlockPlan::between(std::span<const int> sources, std::span<const int> destinations) const {
    std::vector<Block> blocks;
    const auto add = [&](int source, int destination, std::size_t entry, std::size_t slot) {
        if (bytes_[entry] > 0) blocks.push_back({source, destination, slot, from_[entry], to_[entry], bytes_[entry]});
    };
    const bool has_root = pattern_ == Pattern::kScatter ? std::ranges::find(sources, root_) != sources.end()
                                                        : std::ranges::find(destinations, root_) != destinations.end();
    switch (pattern_) {
        case Pattern::kAllGather:
            for (const int source : sources) add(source, Block::kAllRanks, static_cast<std::size_t>(source), 0);
            break;
        case Pattern::kGather:
            for (const int source : sources) {
                if (has_root) add(source, root_, static_cast<std::size_t>(source), 0);
            }
            break;
        case Pattern::kScatter:
            for (const int destination : destinations) {
                const auto entry = static_cast<std::size_t>(destination);
                if (has_root) add(root_, destination, entry, entry);
            }
            break;
        case Pattern::kAllToAll:
            for (const int source : sources) {
                for (const int destination : destinations) {
                    add(source, destination, cell(source, destination), static_cast<std::size_t>(destination));
                }
            }
            break;
    }
    return blocks;
}

std::size_t BlockPlan::max_between(std::size_t sources, std::size_t destinations) const {
    switch (pattern_) {
        case Pattern::kAllGather:
        case Pattern::kGather: return sources;
        case Pattern::kScatter: return destinations;
        case Pattern::kAllToAll: break;
    }
    return sources * destinations;
}

std::size_t BlockPlan::slots() const {
    return pattern_ == Pattern::kScatter || pattern_ == Pattern::kAllToAll ? ranks_ : 1;
}

std::size_t BlockPlan::largest() const { return bytes_.empty() ? 0 : *std::ranges::max_element(bytes_); }

}  // namespace ddp::detail
