#include "worker_lib/src/sharding/unit_gathers.hpp"

#include <algorithm>
#include <utility>

#include "worker_lib/src/reducer/values.hpp"

namespace ddp::detail {

UnitGathers::UnitGathers(ProcessGroup& group, const ShardLayout& layout, GatherOptions options)
    : group_(group), layout_(layout), options_(options), units_(layout.units.size()) {
    const std::size_t count = units_.size();
    for (Order& order : orders_) order.next.resize(count);
    for (std::size_t u = 0; u + 1 < count; ++u) {
        orders_[0].next[u] = u + 1;
        orders_[1].next[u + 1] = u;
    }
    allocate();
}

void UnitGathers::allocate() {
    Arena& arena = group_.arena();
    const std::size_t main_size = size_of(options_.main);
    const std::size_t size = size_of(options_.gathered);
    const auto own = static_cast<std::size_t>(group_.rank());
    std::byte* parts = nullptr;
    std::byte* inputs = nullptr;
    const bool apart = !options_.keep || converts();  // else the part is in its whole unit
    if (apart) parts = static_cast<std::byte*>(arena.allocate(layout_.parts() * main_size));
    if (converts() && !options_.keep) inputs = static_cast<std::byte*>(arena.allocate(layout_.parts() * size));
    const std::size_t blocks =
        options_.keep ? units_.size() : std::min(units_.size(), static_cast<std::size_t>(options_.prefetch) + 1);
    for (std::size_t b = 0; b < blocks; ++b) {
        const std::size_t elements = options_.keep ? layout_.whole(b) : layout_.largest_unit();
        blocks_.push_back({.memory = static_cast<std::byte*>(arena.allocate(elements * size))});
    }
    for (std::size_t u = 0; u < units_.size(); ++u) {
        Unit& unit = units_[u];
        const auto& [elements, part, offset, slots] = layout_.units[u];
        std::byte* const in_place = options_.keep ? blocks_[u].memory + own * part * size : nullptr;
        unit.part = apart ? parts + offset * main_size : in_place;
        unit.input = in_place != nullptr ? in_place : converts() ? inputs + offset * size : unit.part;
    }
}

Buffer UnitGathers::part(std::size_t unit) const {
    return {units_[unit].part, layout_.units[unit].part, options_.main};
}

bool UnitGathers::has_open() const {
    return std::ranges::any_of(units_, [](const Unit& unit) { return unit.open > 0; });
}

void UnitGathers::changed() {
    for (Unit& unit : units_) {
        unit.gather.wait();
        unit.outdated = true;
        if (unit.block) blocks_[*unit.block] = {.memory = blocks_[*unit.block].memory};
        unit.block.reset();
    }
}

void UnitGathers::end_pass() {
    for (Order& order : orders_) {
        if (order.last) order.next[*order.last].reset();
        order.last.reset();
    }
}

Buffer UnitGathers::open(std::size_t unit, bool backward) {
    Order& order = orders_[backward ? 1 : 0];
    if (order.last && order.last != unit) order.next[*order.last] = unit;
    order.last = unit;
    if (!units_[unit].block) begin(unit, true);
    Block& block = blocks_[*units_[unit].block];
    block.expected = false;
    block.used = ++time_;
    ++units_[unit].open;  // first: its block is not to be taken for the next ones
    std::byte* const memory = block.memory;
    std::optional<std::size_t> next = order.next[unit];
    for (int ahead = 0; ahead < options_.prefetch && next; ++ahead, next = order.next[*next]) {
        if (!units_[*next].block && !begin(*next, false)) break;
        blocks_[*units_[*next].block].expected = true;  // also one that is whole already: no other unit takes its block
    }
    try {
        units_[unit].gather.wait();
    } catch (...) {
        --units_[unit].open;
        throw;
    }
    return {memory, layout_.whole(unit), options_.gathered};
}

std::optional<std::size_t> UnitGathers::take_block(std::size_t unit, bool needed) {
    if (options_.keep) return unit;
    std::optional<std::size_t> best;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
        const Block& block = blocks_[b];
        if (block.unit && (units_[*block.unit].open > 0 || (block.expected && !needed))) continue;
        const auto rank = [&](std::size_t i) { return std::pair(blocks_[i].expected, blocks_[i].used); };
        if (!best || rank(b) < rank(*best)) best = b;
    }
    if (!best && needed) {  // more scopes are open than ever before
        void* const memory = group_.arena().allocate(layout_.largest_unit() * size_of(options_.gathered));
        blocks_.push_back({.memory = static_cast<std::byte*>(memory)});
        best = blocks_.size() - 1;
    }
    return best;
}

bool UnitGathers::begin(std::size_t index, bool needed) {
    const std::optional<std::size_t> taken = take_block(index, needed);
    if (!taken) return false;
    Block& block = blocks_[*taken];
    if (block.unit) {
        units_[*block.unit].gather.wait();
        units_[*block.unit].block.reset();
    }
    Unit& unit = units_[index];
    const std::size_t part = layout_.units[index].part;
    if (converts() && unit.outdated) narrow({unit.part, part, options_.main}, {unit.input, part, options_.gathered});
    unit.outdated = false;
    unit.gather =
        group_.all_gather({unit.input, part, options_.gathered},
                          {block.memory, layout_.whole(index), options_.gathered}, {.label = options_.labels[index]});
    unit.block = taken;
    block.unit = index;
    block.expected = !needed;
    block.used = ++time_;
    return true;
}

}  // namespace ddp::detail
