#include "worker_lib/src/sharding/unit_gathers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "worker_lib/src/reducer/values.hpp"

namespace ddp::detail {

UnitGathers::UnitGathers(ProcessGroup& group, const ShardLayout& layout, GatherOptions options)
    : group_(group), layout_(layout), options_(std::move(options)), units_(layout.units.size()) {
    const std::size_t count = units_.size();
    for (Order& order : orders_) order.next.resize(count);
    for (std::size_t u = 0; u + 1 < count; ++u) {
        orders_[0].next[u] = u + 1;
        orders_[1].next[u + 1] = u;
    }
    allocate();
}

void UnitGathers::allocate() {
    const std::size_t main_size = size_of(options_.main);
    const std::size_t size = size_of(options_.gathered);
    const auto own = static_cast<std::size_t>(group_.rank());
    const bool in_place = options_.keep && !maps();  // the input of a gather lies in its whole unit
    std::byte* parts = nullptr;
    std::byte* inputs = nullptr;
    if (!in_place || converts()) parts = allocate_pages(layout_.parts() * main_size);
    if (!in_place) inputs = converts() ? allocate_pages(layout_.parts() * size) : parts;
    if (maps()) map_units(inputs);
    const std::size_t blocks =
        options_.keep ? units_.size() : std::min(units_.size(), static_cast<std::size_t>(options_.prefetch) + 1);
    for (std::size_t b = blocks_.size(); b < blocks; ++b) {
        const std::size_t elements = options_.keep ? layout_.whole(b) : layout_.largest_unit();
        blocks_.push_back({.memory = static_cast<std::byte*>(group_.arena().allocate(elements * size))});
    }
    for (std::size_t u = 0; u < units_.size(); ++u) {
        Unit& unit = units_[u];
        const auto& [elements, part, offset, slots] = layout_.units[u];
        unit.input = in_place ? blocks_[u].memory + own * part * size : inputs + offset * size;
        unit.part = parts != nullptr ? parts + offset * main_size : unit.input;
    }
}

/// Returns memory of the arena; if units are mapped, it begins with a page.
std::byte* UnitGathers::allocate_pages(std::size_t bytes) {
    const std::size_t page = maps() ? page_bytes() : 1;
    auto* const memory = static_cast<std::byte*>(group_.arena().allocate(bytes + page - 1));
    return memory + (page - reinterpret_cast<std::uintptr_t>(memory) % page) % page;
}

void UnitGathers::map_units(const std::byte* inputs) {
    try {
        show_parts(inputs);
    } catch (const Error& error) {
        throw error.reworded(fmt::format("group '{}': rank {}: {}", group_.name(), group_.rank(), error.what()));
    }
}

/// Makes a block of each unit, of the pages of all ranks' inputs. They are at the same offset in each arena, because
/// the group is this object's and all ranks allocate the same.
void UnitGathers::show_parts(const std::byte* inputs) {
    const std::size_t size = size_of(options_.gathered);
    const std::byte* const own = options_.arenas[static_cast<std::size_t>(group_.rank())].data();
    const auto begin = static_cast<std::size_t>(inputs - own);
    std::size_t bytes = 0;
    for (std::size_t u = 0; u < units_.size(); ++u) bytes += layout_.whole(u) * size;
    view_.emplace(bytes);
    std::size_t at = 0;
    for (const auto& [elements, part, offset, slots] : layout_.units) {
        blocks_.push_back({.memory = view_->data() + at});
        for (std::size_t rank = 0; rank * part < elements; ++rank) {  // without parts that are padding alone
            const std::span<const std::byte> arena = options_.arenas[rank];
            const std::size_t from = begin + offset * size;
            // A rank whose arena is too small has failed in its allocation: no gather of the unit succeeds.
            if (from + part * size > arena.size()) continue;
            view_->show(at + rank * part * size, arena.data() + from, part * size);
        }
        at += part * layout_.ranks * size;
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
    if (maps()) group_.barrier({.label = "update"}).wait();
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
    const OpOptions label{.label = options_.labels[index]};
    unit.gather = maps() ? group_.barrier(label)
                         : group_.all_gather({unit.input, part, options_.gathered},
                                             {block.memory, layout_.whole(index), options_.gathered}, label);
    unit.block = taken;
    block.unit = index;
    block.expected = !needed;
    block.used = ++time_;
    return true;
}

}  // namespace ddp::detail
