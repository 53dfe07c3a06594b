#include "worker_lib/src/sharding/shard_layout.hpp"

#include <algorithm>

namespace ddp::detail {
namespace {

std::size_t round_up(std::size_t elements, std::size_t unit) { return (elements + unit - 1) / unit * unit; }

}  // namespace

ShardLayout lay_out_units(const std::vector<std::vector<ParamSpec>>& units, std::size_t ranks,
                          std::size_t granularity) {
    ShardLayout layout{.ranks = ranks, .units = {}};
    std::size_t params = 0;
    for (const std::vector<ParamSpec>& specs : units) {
        const std::size_t offset = layout.parts();
        ShardLayout::Unit& unit = layout.units.emplace_back();
        for (const ParamSpec& spec : specs) {
            const std::size_t begin = round_up(unit.elements, kShardAlignment);
            unit.slots.push_back({params++, begin, spec.count});
            unit.elements = begin + spec.count;
        }
        unit.part = round_up((unit.elements + ranks - 1) / ranks, granularity);
        unit.part_offset = offset;
    }
    return layout;
}

std::size_t ShardLayout::largest_unit() const {
    std::size_t largest = 0;
    for (std::size_t u = 0; u < units.size(); ++u) largest = std::max(largest, whole(u));
    return largest;
}

std::size_t ShardLayout::parts() const { return units.empty() ? 0 : units.back().part_offset + units.back().part; }

std::size_t ShardLayout::filled_parts() const {
    std::size_t filled = 0;
    for (const Unit& unit : units) filled += (unit.elements + unit.part - 1) / unit.part;
    return filled;
}

ShardLayout::Range ShardLayout::range(std::size_t unit, const Slot& slot, std::size_t rank) const {
    const std::size_t part_begin = rank * units[unit].part;
    const std::size_t begin = std::max(slot.begin, part_begin);
    const std::size_t end = std::min(slot.begin + slot.count, part_begin + units[unit].part);
    if (begin >= end) return {unit, slot.param, 0, 0, 0};
    return {unit, slot.param, begin - slot.begin, begin - part_begin, end - begin};
}

std::vector<ShardLayout::Range> ShardLayout::ranges(std::size_t rank) const {
    std::vector<Range> found;
    for (std::size_t u = 0; u < units.size(); ++u) {
        for (const Slot& slot : units[u].slots) {
            if (const Range own = range(u, slot, rank); own.count > 0) found.push_back(own);
        }
    }
    return found;
}

}  // namespace ddp::detail
