#include "worker_lib/check/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

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

using RanksOfNodes = std::vector<std::vector<int>>;

/// Returns the ranks of each node, in order of its first rank. LOCAL_RANK does not separate nodes: it is 0 on all ranks
/// with --virtual-local-rank. Neither does GROUP_RANK, which not all launchers set.
RanksOfNodes ranks_of_nodes(const Context& context, ProcessGroup& world) {
    const auto identities = all_gather_strings(world, fmt::format("{}/{}", host_identity(), context.node_rank()));
    std::map<std::string, std::size_t> numbers;
    RanksOfNodes nodes;
    for (std::size_t rank = 0; rank < identities.size(); ++rank) {
        const auto [entry, is_new] = numbers.try_emplace(identities[rank], nodes.size());
        if (is_new) nodes.emplace_back();
        nodes[entry->second].push_back(static_cast<int>(rank));
    }
    return nodes;
}

VisibleGpus own_visible_gpus() {
    VisibleGpus visible;
    if (const char* const list = std::getenv("CUDA_VISIBLE_DEVICES")) visible.list = list;
    return visible;
}

/// Returns the nodes, by first rank, on rank 0; an empty list on the other ranks. The first rank of a node collects.
std::vector<Node> gather_nodes(ProcessGroup& world, const RanksOfNodes& ranks_by_node) {
    const auto is_first = [&](const std::vector<int>& ranks) { return ranks.front() == world.rank(); };
    const bool collects = std::ranges::any_of(ranks_by_node, is_first);
    const auto facts = gather_strings(world, collects ? to_json(collect_facts()) : "", 0);
    const auto lists = gather_strings(world, to_json(own_visible_gpus()), 0);
    std::vector<Node> nodes;
    if (world.rank() != 0) return nodes;
    for (const std::vector<int>& ranks : ranks_by_node) {
        Node node = parse_node(facts[static_cast<std::size_t>(ranks.front())]);
        node.first_rank = ranks.front();
        node.ranks = static_cast<int>(ranks.size());
        std::vector<VisibleGpus> visible;
        for (const int rank : ranks) visible.push_back(parse_visible_gpus(lists[static_cast<std::size_t>(rank)]));
        keep_usable_gpus(node, visible);
        nodes.push_back(std::move(node));
    }
    return nodes;
}

void add_result(Cluster& cluster, const RankResult& result, int rank, int node) {
    cluster.links.insert(cluster.links.end(), result.links.begin(), result.links.end());
    cluster.all_reduce.seconds = std::max(cluster.all_reduce.seconds, result.all_reduce_seconds);
    if (result.wrong_integers + result.wrong_floats > 0)
        cluster.all_reduce.wrong.push_back({rank, node, result.wrong_integers, result.wrong_floats});
}

}  // namespace

Report check_job(Context& context) {
    ProcessGroup& world = context.world();
    const RanksOfNodes ranks_by_node = ranks_of_nodes(context, world);
    std::vector<int> leaders;
    for (const std::vector<int>& ranks : ranks_by_node) leaders.push_back(ranks.front());
    Cluster cluster;
    cluster.nodes = gather_nodes(world, ranks_by_node);

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
        for (int node = 0; node < nodes; ++node) {
            for (const int rank : ranks_by_node[static_cast<std::size_t>(node)])
                add_result(cluster, parse_rank_result(results[static_cast<std::size_t>(rank)]), rank, node);
        }
        set_medians(cluster);
        const auto findings = find_problems(cluster);
        report = {table_of(cluster, findings), verdict_of(cluster, findings), report_json(cluster, findings),
                  findings.empty()};
    }
    report.ok = context.agree(report.ok);
    return report;
}

}  // namespace ddp::check
