#include "worker_lib/src/native/collectives/all_reduce_parts.hpp"

#include <cstring>

namespace ddp::detail {

AllReduceParts::AllReduceParts(const CollectiveContext& the_context, const Operation& the_operation,
                               const OwnBuffers& own_buffers)
    : context(the_context),
      operation(the_operation),
      own(own_buffers),
      reduction(lookup(operation.buffer.dtype, operation.reduce_op)),
      width(size_of(operation.buffer.dtype)),
      grain(kSeparation / width),
      scale(operation.reduce_op == ReduceOp::Avg ? 1.0 / context.topology.ranks() : 1.0),
      receives_(gets_result(context.node.ranks.rank_at(context.node.ranks.own_index()))),
      alone_(context.node.ranks.size() == 1) {
    if (context.nodes() == 1) return;
    if (receives_) receivers_.push_back(context.node.ranks.own_index());
    for (int i = 0; i < context.node.ranks.size(); ++i) {
        if (i != context.node.ranks.own_index() && gets_result(context.node.ranks.rank_at(i))) receivers_.push_back(i);
    }
}

void AllReduceParts::meet(bool streams) const {
    context.node.meetings.meet(operation, {.input = own.input.offset(),
                                           .output = receives_ ? own.output.offset() : BufferOffsets::kNone,
                                           .streams = streams});
}

bool AllReduceParts::any_staged() const {
    return !alone_ &&
           (context.node.meetings.any_foreign(Side::kInput) || context.node.meetings.any_foreign(Side::kOutput));
}

void AllReduceParts::stage(Range window) const {
    if (alone_ || !own.input.is_foreign()) return;
    const std::size_t first = window.begin * width;
    own.input.copy_out_to(context.node.ranks.staging(context.node.ranks.own_index()) + first % kStagingBytes, first,
                          window.size() * width);
}

void AllReduceParts::take(Range window) const {
    if (alone_ || !receives_ || !own.output.is_foreign()) return;
    const std::size_t first = window.begin * width;
    own.output.copy_in_from(context.node.ranks.staging(context.node.ranks.own_index()) + first % kStagingBytes, first,
                            window.size() * width);
}

std::byte* AllReduceParts::address_of(int index, Side side, std::size_t element) const {
    const std::size_t at = element * width;
    if (alone_) return (side == Side::kInput ? own.input.data : own.output.data) + at;
    return context.node.meetings.is_foreign(index, side) ? context.node.ranks.staging(index) + at % kStagingBytes
                                                         : context.node.meetings.buffer(index, side) + at;
}

std::vector<const void*> AllReduceParts::sources(std::size_t begin) const {
    std::vector<const void*> list;
    for (int i = 0; i < context.node.ranks.size(); ++i) list.push_back(address_of(i, Side::kInput, begin));
    return list;
}

std::vector<void*> AllReduceParts::outputs(std::size_t begin) const {
    std::vector<void*> list;
    for (const int i : receivers_) list.push_back(address_of(i, Side::kOutput, begin));
    return list;
}

std::byte* AllReduceParts::landing(std::size_t begin) const {
    return receivers_.empty() ? nullptr : address_of(receivers_.front(), Side::kOutput, begin);
}

void AllReduceParts::spread(Range range) const {
    for (std::size_t i = 1; i < receivers_.size(); ++i) {
        std::memcpy(address_of(receivers_[i], Side::kOutput, range.begin), landing(range.begin), range.size() * width);
    }
}

}  // namespace ddp::detail
