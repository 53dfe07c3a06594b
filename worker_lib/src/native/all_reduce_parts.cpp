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
      receives_(gets_result(team.node.rank_at(team.node.own_index()))) {
    for (int i = 0; i < team.node.size(); ++i) {
        if (gets_result(team.node.rank_at(i))) receivers_.push_back(i);
    }
}

void AllReduceParts::meet() const {
    team.node.meet(operation, {.input = own.input.place(), .output = receives_ ? own.output.place() : Places::kNone});
}

void AllReduceParts::stage(std::size_t first, std::size_t size) const {
    own.input.copy_out_to(team.node.staging(team.node.own_index()), first * width, size * width);
}

std::vector<const void*> AllReduceParts::sources(std::size_t first, std::size_t begin) const {
    std::vector<const void*> list;
    for (int i = 0; i < team.node.size(); ++i)
        list.push_back(place(team.node, i, Side::kInput, first * width) + begin * width);
    return list;
}

void AllReduceParts::store(const std::byte* elements, std::size_t first, std::size_t begin, std::size_t size) const {
    for (const int i : receivers_) {
        std::memcpy(place(team.node, i, Side::kOutput, first * width) + begin * width, elements, size * width);
    }
}

}  // namespace ddp::detail
