#pragma once
// NodeCollective: the two ranks of a node in one process. Rank 0 sums up a buffer that both have announced, step by
// step.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "tests/unit/worker_lib/support/node_ranks.hpp"
#include "worker_lib/src/native/collectives/collectives.hpp"

namespace ddp::testing {

/// The first of `nodes` nodes. Both ranks have opened an all-reduce of `count` floats at the beginning of their
/// heaps, which rank 0 has joined.
struct NodeCollective {
    explicit NodeCollective(int nodes, std::size_t count) : one(operation(1)) {
        topology.nodes = {{0, 1}};
        for (int node = 1; node < nodes; ++node) topology.nodes.push_back({node + 1});
        topology.carriers = 1;
        scratch.sources.reserve(2);
        scratch.outputs.reserve(2);
        one.kind = detail::OpKind::kAllReduce;
        one.buffer = Buffer(values(0, count));
        for (int rank : {0, 1}) {
            std::ranges::fill(values(rank, count), static_cast<float>(rank + 1));
            ranks[rank].progress.begin(one);
            ranks[rank].meetings.open(one, {.input = 0, .output = 0});
        }
        own.input = own.output = {.data = heap(0), .bytes = count * sizeof(float), .heap_offset = 0};
        ranks[0].meetings.join(one);
    }

    [[nodiscard]] std::byte* heap(int rank) { return ranks[rank].ranks.local(rank).segment->heap(); }
    [[nodiscard]] std::span<float> values(int rank, std::size_t count) {
        return {reinterpret_cast<float*>(heap(rank)), count};
    }

    Ranks ranks{2};
    detail::Topology topology;
    detail::OperationScratch scratch;
    detail::AllReduceRules rules;
    std::vector<detail::Member> members;
    detail::Operation one;
    detail::OwnBuffers own;
    detail::CollectiveContext context{
        .topology = topology, .node = ranks[0], .scratch = scratch, .rules = rules, .members = members};
};

}  // namespace ddp::testing
