#include "launcher/binding/bind_workers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

#include "common/text/number.hpp"

namespace ddprun::launcher {
namespace {

using Sets = std::vector<CpuSet>;
using Indices = std::vector<std::size_t>;

/// Returns the parts of `sets` that lie within `cpus`; sets outside are left out.
Sets within(const CpuSet& cpus, const Sets& sets) {
    Sets parts;
    for (const CpuSet& set : sets) {
        CpuSet part = common_cpus(set, cpus);
        if (!part.empty()) parts.push_back(std::move(part));
    }
    return parts;
}

/// Returns which of `groups` have CPUs of `near`; all if none has.
Indices choice_of(const Sets& groups, const CpuSet& near) {
    Indices all(groups.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    Indices touched;
    std::ranges::copy_if(all, std::back_inserter(touched),
                         [&](std::size_t group) { return !common_cpus(groups[group], near).empty(); });
    return touched.empty() ? all : touched;
}

/// Returns the groups of `count` more workers with one choice, in blocks. Each group of the choice gets workers in
/// proportion to its cores, and `loads` counts those that it has already.
Indices fill(const Indices& choice, const std::vector<std::size_t>& cores, const std::vector<std::size_t>& loads,
             std::size_t count) {
    std::size_t all_cores = 0;
    std::size_t workers = count;
    for (const std::size_t group : choice) {
        all_cores += cores[group];
        workers += loads[group];
    }
    assert(all_cores > 0);
    std::vector<std::size_t> ends;  // of the room that each group has left; a worker takes `all_cores`
    std::size_t end = 0;
    for (const std::size_t group : choice) {
        const std::size_t room = cores[group] * workers;
        end += room - std::min(room, loads[group] * all_cores);
        ends.push_back(end);
    }
    Indices filled;
    for (std::size_t i = 0; i < count; ++i)
        filled.push_back(
            choice[static_cast<std::size_t>(std::ranges::upper_bound(ends, i * end / count) - ends.begin())]);
    return filled;
}

/// Returns the index in `groups` of the group of each worker. Workers with the smallest choice come first, because the
/// others can avoid the groups that these fill.
Indices spread(const Sets& groups, const Topology& topology, const Sets& near) {
    std::map<std::pair<std::size_t, Indices>, Indices> workers_by_choice;  // by its size
    for (std::size_t worker = 0; worker < near.size(); ++worker) {
        Indices choice = choice_of(groups, near[worker]);
        const std::size_t size = choice.size();
        workers_by_choice[{size, std::move(choice)}].push_back(worker);
    }
    std::vector<std::size_t> cores;
    for (const CpuSet& group : groups) cores.push_back(within(group, topology.cores).size());
    assert(std::ranges::find(cores, std::size_t{0}) == cores.end());
    std::vector<std::size_t> loads(groups.size());
    Indices result(near.size());
    for (const auto& [choice, workers] : workers_by_choice) {
        const Indices filled = fill(choice.second, cores, loads, workers.size());
        for (std::size_t i = 0; i < workers.size(); ++i) {
            result[workers[i]] = filled[i];
            ++loads[filled[i]];
        }
    }
    return result;
}

/// Returns share `index` of `count`: neighbouring cores, and one more in the first shares if the division leaves some.
CpuSet share_of(const Sets& cores, std::size_t index, std::size_t count) {
    const std::size_t size = cores.size() / count;
    const std::size_t left = cores.size() % count;
    const std::size_t begin = index * size + std::min(index, left);
    CpuSet cpus;
    for (std::size_t core = begin; core < begin + size + (index < left ? 1 : 0); ++core)
        cpus.insert(cores[core].begin(), cores[core].end());
    return cpus;
}

Error too_few_cores(const Topology::NumaNode& node, std::size_t cores, std::size_t workers) {
    return {Errc::kUsage,
            fmt::format("--numa-binding exclusive: NUMA node {} has {} for {}, and each needs one of its own. Start "
                        "fewer workers (--nproc-per-node), or pass --numa-binding node.",
                        node.index, counted(cores, "core"), counted(workers, "worker"))};
}

/// Returns the CPUs of the `count` workers of one NUMA node.
Result<Sets> bind_within(NumaBinding binding, const Topology& topology, const Topology::NumaNode& node,
                         std::size_t count) {
    Sets bound(count, node.cpus);
    if (binding == NumaBinding::kExclusive) {
        const Sets cores = within(node.cpus, topology.cores);
        if (cores.size() < count) return too_few_cores(node, cores.size(), count);
        for (std::size_t i = 0; i < count; ++i) bound[i] = share_of(cores, i, count);
    } else if (binding == NumaBinding::kCoreComplex) {
        Sets complexes = within(node.cpus, topology.core_complexes);
        std::ranges::stable_sort(complexes, std::greater{}, &CpuSet::size);  // one that is allowed in part comes last
        for (std::size_t i = 0; i < count && !complexes.empty(); ++i) bound[i] = complexes[i % complexes.size()];
    }
    return bound;
}

Sets cpus_of(const std::vector<Topology::NumaNode>& nodes) {
    Sets sets;
    for (const auto& node : nodes) sets.push_back(node.cpus);
    return sets;
}

Result<Sets> choose_cpus(NumaBinding binding, const Topology& topology, const Sets& near) {
    Sets chosen(near.size());
    if (binding == NumaBinding::kSocket) {
        const Indices package = spread(topology.packages, topology, near);
        for (std::size_t worker = 0; worker < near.size(); ++worker)
            chosen[worker] = topology.packages[package[worker]];
        return chosen;
    }
    std::map<std::size_t, Indices> workers_of;  // by the index of their NUMA node
    const Indices node = spread(cpus_of(topology.numa_nodes), topology, near);
    for (std::size_t worker = 0; worker < near.size(); ++worker) workers_of[node[worker]].push_back(worker);
    for (const auto& [index, workers] : workers_of) {
        auto bound = bind_within(binding, topology, topology.numa_nodes[index], workers.size());
        if (!bound) return bound.error();
        for (std::size_t i = 0; i < workers.size(); ++i) chosen[workers[i]] = std::move((*bound)[i]);
    }
    return chosen;
}

/// Returns OMP_NUM_THREADS of a worker on `cpus`: its share of them. `users` counts the workers on each CPU.
int threads_on(const CpuSet& cpus, const std::map<int, int>& users) {
    double share = 0;
    for (const int cpu : cpus) share += 1.0 / users.at(cpu);
    return std::max(1, static_cast<int>(share + 1e-6));  // the sum of 1/3, 1/3 and 1/3 is 1
}

}  // namespace

Result<std::vector<agent::WorkerBinding>> bind_workers(NumaBinding binding, const Topology& topology,
                                                       const std::vector<CpuSet>& near) {
    assert(!topology.numa_nodes.empty());
    auto chosen = choose_cpus(binding, topology, near);
    if (!chosen) return chosen.error();
    std::map<int, int> users;
    for (const CpuSet& cpus : *chosen)
        for (const int cpu : cpus) ++users[cpu];
    std::vector<agent::WorkerBinding> bindings;
    for (const CpuSet& cpus : *chosen) {
        agent::WorkerBinding made;
        for (const auto& node : topology.numa_nodes)
            if (!common_cpus(node.cpus, cpus).empty()) made.numa_nodes.insert(node.index);
        made.threads = threads_on(cpus, users);
        made.cpus = cpu_mask(cpus);
        bindings.push_back(std::move(made));
    }
    return bindings;
}

}  // namespace ddprun::launcher
