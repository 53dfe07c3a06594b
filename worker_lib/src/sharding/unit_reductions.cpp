#include "worker_lib/src/sharding/unit_reductions.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "worker_lib/src/kernels/reduce.hpp"
#include "worker_lib/src/reducer/values.hpp"
#include "worker_lib/src/util/float_environment.hpp"

namespace ddp::detail {
namespace {

constexpr std::size_t kBlocks = 2;  // one is written while the other is exchanged

void add_same(const void* from, void* onto, std::size_t count, DType type) {
    const std::array<const void*, 2> sources{onto, from};
    lookup(type, ReduceOp::Sum).reduce_into(sources.data(), sources.size(), count, 1, &onto, 1);
}

/// Adds `from`, of the same type or of f16 or bf16, to `onto`.
void add(const Buffer& from, const Buffer& onto) {
    const ScopedFloatEnvironment floats;
    if (from.dtype == onto.dtype) return add_same(from.data, onto.data, from.count, from.dtype);
    std::array<float, 1024> wide;
    for (std::size_t begin = 0; begin < from.count; begin += wide.size()) {
        const std::size_t count = std::min(wide.size(), from.count - begin);
        const void* const narrow = static_cast<const std::byte*>(from.data) + begin * size_of(from.dtype);
        lookup(from.dtype, ReduceOp::Sum).reduce(&narrow, 1, count, wide.data());
        add_same(wide.data(), static_cast<float*>(onto.data) + begin, count, onto.dtype);
    }
}

/// Copies `from`, of the same type or of f16 or bf16, to `onto`.
void copy(const Buffer& from, const Buffer& onto) {
    if (from.dtype == onto.dtype)
        std::memcpy(onto.data, from.data, from.bytes());
    else
        widen(from, onto);
}

}  // namespace

UnitReductions::UnitReductions(ProcessGroup& group, ProcessGroup* replicas, const ShardLayout& layout,
                               ReductionOptions options)
    : group_(group), replicas_(replicas), layout_(layout), options_(options), units_(layout.units.size()) {
    Arena& second = (replicas != nullptr ? *replicas : group).arena();
    Arena& first = (group.size() == 1 && replicas != nullptr ? *replicas : group).arena();
    const std::size_t main_size = size_of(options.main);
    auto* const parts = static_cast<std::byte*>(second.allocate(layout.parts() * main_size));
    for (std::size_t u = 0; u < units_.size(); ++u) units_[u].part = parts + layout.units[u].part_offset * main_size;
    blocks_.resize(options.keep ? units_.size() : std::min(units_.size(), kBlocks));
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
        const std::size_t elements = options.keep ? layout.whole(b) : layout.largest_unit();
        blocks_[b].memory = static_cast<std::byte*>(first.allocate(elements * size_of(options.reduced)));
    }
}

Buffer UnitReductions::part(std::size_t unit) const {
    return {units_[unit].part, layout_.units[unit].part, options_.main};
}

void UnitReductions::begin(Reduce reduce) {
    reduce_ = reduce;
    for (Unit& unit : units_) unit.opened = false;
}

Buffer UnitReductions::open(std::size_t unit) {
    units_[unit].block = take_block(unit);
    units_[unit].opened = true;
    Block& block = blocks_[units_[unit].block];
    block.unit = unit;
    return whole(unit, block.memory);
}

std::size_t UnitReductions::take_block(std::size_t unit) {
    if (options_.keep) return unit;
    const auto find = [this] { return std::ranges::find(blocks_, std::optional<std::size_t>{}, &Block::unit); };
    auto found = find();
    if (found == blocks_.end() && !in_flight_.empty()) {
        end_first();
        found = find();
    }
    if (found == blocks_.end()) {  // more scopes are open than ever before
        void* const memory = group_.arena().allocate(layout_.largest_unit() * size_of(options_.reduced));
        found = blocks_.insert(found, {.memory = static_cast<std::byte*>(memory)});
    }
    return static_cast<std::size_t>(found - blocks_.begin());
}

void UnitReductions::close(std::size_t unit) {
    if (reduce_ == Reduce::No) return keep(unit);
    begin_first(unit);
    in_flight_.push_back(units_[unit].block);
    const bool has_second = replicas_ != nullptr && group_.size() > 1;
    if (has_second && in_flight_.size() > kBlocks) end_first();  // so that it overlaps with backward
}

void UnitReductions::keep(std::size_t index) {
    Unit& unit = units_[index];
    Block& block = blocks_[unit.block];
    const Buffer gradient = whole(index, block.memory);
    if (unit.kept == nullptr) unit.kept = static_cast<std::byte*>(group_.arena().allocate(gradient.bytes()));
    if (unit.has_kept)
        add(gradient, whole(index, unit.kept));
    else
        copy(gradient, whole(index, unit.kept));
    unit.has_kept = true;
    block.unit.reset();
}

void UnitReductions::begin_first(std::size_t index) {
    Unit& unit = units_[index];
    Block& block = blocks_[unit.block];
    const Buffer gradient = whole(index, block.memory);
    if (unit.has_kept) add(whole(index, unit.kept), gradient);
    unit.has_kept = false;
    const bool into_part = !unit.has_sum && options_.main == options_.reduced;
    const std::size_t elements = layout_.units[index].part;
    std::byte* const own =
        block.memory + static_cast<std::size_t>(group_.rank()) * elements * size_of(options_.reduced);
    const Buffer target = into_part ? part(index) : Buffer{own, elements, options_.reduced};
    block.sum = into_part ? Buffer{} : target;
    const OpOptions label{.label = options_.labels[index]};
    const bool only = reduce_ == Reduce::All && (replicas_ == nullptr || group_.size() == 1) && !unit.has_sum;
    ProcessGroup& exchange = only && replicas_ != nullptr ? *replicas_ : group_;
    // A sum in a narrow type could overflow where the average does not.
    const bool divides = only || options_.main != options_.reduced;
    unit.divided_by = divides ? exchange.size() : 1;
    unit.is_average = only;
    const ReduceOp op = divides ? ReduceOp::Avg : ReduceOp::Sum;
    if (&exchange == replicas_)
        block.first = replicas_->all_reduce(gradient, target, op, label);
    else
        block.first = group_.reduce_scatter(gradient, target, op, label);
}

void UnitReductions::end_first() {
    Block& block = blocks_[in_flight_.front()];
    in_flight_.pop_front();
    block.first.wait();
    const std::size_t index = *std::exchange(block.unit, std::nullopt);
    Unit& unit = units_[index];
    if (block.sum.data != nullptr) {
        if (unit.has_sum)
            add(block.sum, part(index));
        else
            copy(block.sum, part(index));
    }
    unit.has_sum = true;
    if (reduce_ == Reduce::All && replicas_ != nullptr && !unit.is_average)
        unit.second = replicas_->all_reduce(part(index), ReduceOp::Sum, {.label = options_.labels[index]});
}

void UnitReductions::finish() {
    while (!in_flight_.empty()) end_first();
    if (reduce_ != Reduce::All) return;
    for (std::size_t u = 0; u < units_.size(); ++u) {
        Unit& unit = units_[u];
        std::exchange(unit.second, Work{}).wait();
        scale(part(u), static_cast<double>(unit.divided_by) / (group_.size() * replicas()));
        unit.has_sum = false;
    }
}

}  // namespace ddp::detail
