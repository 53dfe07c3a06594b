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

void AllReduceParts::stage(std::size_t first, std::size_t size) const {
    own.input.copy_out_to(team.node.staging(team.node.own_index()), first * width, size * width);
}

std::byte* AllReduceParts::place_of(int index, Side side, std::size_t first) const {
    if (!alone_) return place(team.node, index, side, first * width);
    return (side == Side::kInput ? own.input.data : own.output.data) + first * width;
}

std::vector<const void*> AllReduceParts::sources(std::size_t first, std::size_t begin) const {
    std::vector<const void*> list;
    for (int i = 0; i < team.node.size(); ++i) list.push_back(place_of(i, Side::kInput, first) + begin * width);
    return list;
}

std::vector<void*> AllReduceParts::outputs(std::size_t first, std::size_t begin) const {
    std::vector<void*> list;
    for (const int i : receivers_) list.push_back(place_of(i, Side::kOutput, first) + begin * width);
    return list;
}

std::byte* AllReduceParts::landing(std::size_t first, std::size_t begin) const {
    return receivers_.empty() ? nullptr : place_of(receivers_.front(), Side::kOutput, first) + begin * width;
}

void AllReduceParts::spread(std::size_t first, std::size_t begin, std::size_t size) const {
    for (std::size_t i = 1; i < receivers_.size(); ++i) {
        std::byte* const to = place_of(receivers_[i], Side::kOutput, first) + begin * width;
        std::memcpy(to, landing(first, begin), size * width);
    }
}

}  // namespace ddp::detail
