#pragma once
// The two ranks of a node in one process, of which rank 0 sums up a buffer that both have announced, step by step.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "tests/unit/worker_lib/node_ranks.hpp"
#include "worker_lib/src/native/collectives.hpp"

namespace ddp::testing {

/// Of `nodes` nodes the first one. Both ranks have opened an all-reduce of `count` floats at the beginning of their
/// heaps, which rank 0 has joined.
struct NodeTeam {
    explicit NodeTeam(int nodes, std::size_t count) : one(operation(1)) {
        topology.nodes = {{0, 1}};
        for (int node = 1; node < nodes; ++node) topology.nodes.push_back({node + 1});
        topology.carriers = 1;
        scratch.sources.reserve(2);
        scratch.outputs.reserve(2);
        one.kind = detail::OpKind::kAllReduce;
        one.buffer = buffer(values(0, count));
        for (int rank : {0, 1}) {
            std::ranges::fill(values(rank, count), static_cast<float>(rank + 1));
            ranks[rank].begin(one);
            ranks[rank].open(one, {.input = 0, .output = 0});
        }
        own.input = own.output = {.data = heap(0), .bytes = count * sizeof(float), .heap_offset = 0};
        ranks[0].join(one);
    }

    [[nodiscard]] std::byte* heap(int rank) { return ranks[rank].local(rank).segment->heap(); }
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
    detail::Team team{.topology = topology, .node = ranks[0], .scratch = scratch, .rules = rules, .members = members};
};

}  // namespace ddp::testing
