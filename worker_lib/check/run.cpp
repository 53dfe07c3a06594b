#include "worker_lib/check/run.hpp"

#include <algorithm>
#include <cstdlib>

#include "ddp/collectives.hpp"
#include "worker_lib/check/bandwidth_schedule.hpp"
#include "worker_lib/check/collect.hpp"
#include "worker_lib/check/facts.hpp"
#include "worker_lib/check/findings.hpp"
#include "worker_lib/check/measure.hpp"
#include "worker_lib/check/table.hpp"
#include "worker_lib/check/usable_gpus.hpp"

namespace ddp::check {
namespace {

/// Returns the facts of this node as JSON; empty on ranks that are not the first of their node.
std::string own_facts(const Context& context) {
    if (context.local_rank() != 0) return "";
    Node node = collect_facts();
    node.first_rank = context.rank();
    node.ranks = context.local_world_size();
    return to_json(node);
}

/// Returns the nodes, by rank, on rank 0; an empty list on the other ranks.
std::vector<Node> gather_nodes(const Context& context, ProcessGroup& world) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    const auto facts = gather_strings(world, own_facts(context), 0);
    const auto lists =
        gather_strings(world, to_json(VisibleGpus{visible ? std::optional<std::string>(visible) : std::nullopt}), 0);
    std::vector<Node> nodes;
    for (const std::string& text : facts) {
        if (text.empty()) continue;
        Node node = parse_node(text);
        std::vector<VisibleGpus> of_ranks;
        for (int rank = node.first_rank; rank < node.first_rank + node.ranks; ++rank)
            of_ranks.push_back(parse_visible_gpus(lists.at(static_cast<std::size_t>(rank))));
        keep_usable_gpus(node, of_ranks);
        nodes.push_back(std::move(node));
    }
    return nodes;
}

/// Returns the first rank of each node, by rank.
std::vector<int> leaders_of(const Context& context, ProcessGroup& world) {
    const int is_first = context.local_rank() == 0 ? 1 : 0;
    std::vector<int> flags(static_cast<std::size_t>(world.size()));
    world.all_gather(is_first, flags).wait();
    std::vector<int> leaders;
    for (int rank = 0; rank < world.size(); ++rank)
        if (flags[static_cast<std::size_t>(rank)] == 1) leaders.push_back(rank);
    return leaders;
}

void add_result(Cluster& cluster, const RankResult& result, int rank) {
    cluster.links.insert(cluster.links.end(), result.links.begin(), result.links.end());
    cluster.all_reduce.seconds = std::max(cluster.all_reduce.seconds, result.all_reduce_seconds);
    if (result.wrong_integers + result.wrong_floats > 0)
        cluster.all_reduce.wrong.push_back({rank, result.wrong_integers, result.wrong_floats});
}

}  // namespace

Report check_job(Context& context) {
    ProcessGroup& world = context.world();
    const std::vector<int> leaders = leaders_of(context, world);
    Cluster cluster;
    cluster.nodes = gather_nodes(context, world);

    const auto clocks = measure_clocks(world, leaders);
    RankResult own;
    own.links = measure_links(world, leaders);
    verify_all_reduce(world, own);
    const auto results = gather_strings(world, to_json(own), 0);

    Report report;
    if (world.rank() == 0) {
        const int nodes = static_cast<int>(leaders.size());
        for (std::size_t i = 0; i < clocks.size(); ++i) cluster.nodes[i].clock = clocks[i];
        cluster.rounds = static_cast<int>(rounds_of(nodes).size());
        cluster.complete_rounds = complete_rounds(nodes);
        cluster.all_reduce.ranks = world.size();
        cluster.all_reduce.bytes = kAllReduceBytes;
        for (std::size_t rank = 0; rank < results.size(); ++rank)
            add_result(cluster, parse_rank_result(results[rank]), static_cast<int>(rank));
        set_medians(cluster);
        const auto findings = find_problems(cluster);
        report = {table_of(cluster, findings), verdict_of(cluster, findings), report_json(cluster, findings),
                  findings.empty()};
    }
    report.ok = context.agree(report.ok);
    return report;
}

}  // namespace ddp::check
