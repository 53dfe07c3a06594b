#include "worker_lib/src/native/all_reduce_parts.hpp"

#include <cstring>

namespace ddp::detail {

AllReduceParts::AllReduceParts(const Team& the_team, const Operation& the_operation, const OwnBuffers& own_buffers)
    : team(the_team),
      operation(the_operation),
      own(own_buffers),
      reduction(lookup(operation.buffer.dtype, operation.reduce_op)),
      width(size_of(operation.buffer.dtype)),
      grain(kSeparation / width),
      scale(operation.reduce_op == ReduceOp::Avg ? 1.0 / team.topology.ranks() : 1.0),
      receives_(gets_result(team.node.rank_at(team.node.own_index()))),
      alone_(team.node.size() == 1) {
    if (team.nodes() == 1) return;
    if (receives_) receivers_.push_back(team.node.own_index());
    for (int i = 0; i < team.node.size(); ++i) {
        if (i != team.node.own_index() && gets_result(team.node.rank_at(i))) receivers_.push_back(i);
    }
}

void AllReduceParts::meet(bool streams) const {
    team.node.meet(
        operation,
        {.input = own.input.place(), .output = receives_ ? own.output.place() : Places::kNone, .streams = streams});
}

bool AllReduceParts::any_staged() const {
    return !alone_ && (team.node.any_foreign(Side::kInput) || team.node.any_foreign(Side::kOutput));
}

void AllReduceParts::stage(Range window) const {
    if (alone_ || !own.input.is_foreign()) return;
    const std::size_t first = window.begin * width;
    own.input.copy_out_to(team.node.staging(team.node.own_index()) + first % kStagingBytes, first,
                          window.size() * width);
}

void AllReduceParts::take(Range window) const {
    if (alone_ || !receives_ || !own.output.is_foreign()) return;
    const std::size_t first = window.begin * width;
    own.output.copy_in_from(team.node.staging(team.node.own_index()) + first % kStagingBytes, first,
                            window.size() * width);
}

std::byte* AllReduceParts::place_of(int index, Side side, std::size_t element) const {
    const std::size_t at = element * width;
    if (alone_) return (side == Side::kInput ? own.input.data : own.output.data) + at;
    return team.node.is_foreign(index, side) ? team.node.staging(index) + at % kStagingBytes
                                             : team.node.buffer(index, side) + at;
}

std::vector<const void*> AllReduceParts::sources(std::size_t begin) const {
    std::vector<const void*> list;
    for (int i = 0; i < team.node.size(); ++i) list.push_back(place_of(i, Side::kInput, begin));
    return list;
}

std::vector<void*> AllReduceParts::outputs(std::size_t begin) const {
    std::vector<void*> list;
    for (const int i : receivers_) list.push_back(place_of(i, Side::kOutput, begin));
    return list;
}

std::byte* AllReduceParts::landing(std::size_t begin) const {
    return receivers_.empty() ? nullptr : place_of(receivers_.front(), Side::kOutput, begin);
}

void AllReduceParts::spread(Range range) const {
    for (std::size_t i = 1; i < receivers_.size(); ++i) {
        std::memcpy(place_of(receivers_[i], Side::kOutput, range.begin), landing(range.begin), range.size() * width);
    }
}

}  // namespace ddp::detail
