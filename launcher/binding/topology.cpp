#include "launcher/binding/topology.hpp"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <utility>

#include "common/text/list.hpp"

namespace ddprun::launcher {
namespace {

using Hwloc = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, decltype(&::hwloc_topology_destroy)>;

/// Keeps hwloc from loading its plug-ins, unless the user wants them: they start the drivers of GPUs and displays,
/// which may take seconds, for I/O devices that we do not ask for.
class WithoutPlugins {
public:
    WithoutPlugins() {
        if (mine_) ::setenv(kVariable, "", 1);
    }
    ~WithoutPlugins() {
        if (mine_) ::unsetenv(kVariable);
    }
    WithoutPlugins(const WithoutPlugins&) = delete;
    WithoutPlugins& operator=(const WithoutPlugins&) = delete;

private:
    static constexpr const char* kVariable = "HWLOC_PLUGINS_PATH";
    bool mine_ = std::getenv(kVariable) == nullptr;
};

CpuSet cpus_of(const hwloc_obj* object) {
    CpuSet cpus;
    unsigned index = 0;
    hwloc_bitmap_foreach_begin(index, object->cpuset) cpus.insert(cpus.end(), static_cast<int>(index));
    hwloc_bitmap_foreach_end();
    return cpus;
}

std::vector<CpuSet> sets_of(hwloc_topology_t hwloc, int depth) {
    std::vector<CpuSet> sets;
    for (hwloc_obj_t object = nullptr; (object = ::hwloc_get_next_obj_by_depth(hwloc, depth, object)) != nullptr;)
        sets.push_back(cpus_of(object));
    return sets;
}

/// Returns the NUMA nodes without those that only add memory (HBM, CXL) to CPUs of other nodes: hwloc shows these with
/// the CPUs near them. A node of a few CPUs comes before one that has them among others.
std::vector<Topology::NumaNode> numa_nodes_of(hwloc_topology_t hwloc) {
    std::vector<Topology::NumaNode> nodes;
    for (hwloc_obj_t object = nullptr;
         (object = ::hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, object)) != nullptr;)
        nodes.push_back({static_cast<int>(object->os_index), cpus_of(object)});
    std::ranges::stable_sort(nodes, {}, [](const auto& node) { return std::pair(node.cpus.size(), node.index); });
    CpuSet taken;
    std::erase_if(nodes, [&taken](const Topology::NumaNode& node) {
        if (!common_cpus(taken, node.cpus).empty()) return true;
        taken.insert(node.cpus.begin(), node.cpus.end());
        return node.cpus.empty();
    });
    std::ranges::sort(nodes, {}, [](const auto& node) { return *node.cpus.begin(); });
    return nodes;
}

std::vector<CpuSet> packages_of(hwloc_topology_t hwloc) {
    const int depth = ::hwloc_get_type_depth(hwloc, HWLOC_OBJ_PACKAGE);
    return sets_of(hwloc, std::max(depth, 0));  // some virtual machines show none: then the whole machine, at depth 0
}

std::vector<CpuSet> core_complexes_of(hwloc_topology_t hwloc) {
    for (const hwloc_obj_type_t cache : {HWLOC_OBJ_L5CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
        const int depth = ::hwloc_get_type_depth(hwloc, cache);
        if (depth >= 0) return sets_of(hwloc, depth);
    }
    return {};
}

/// Returns the variable that names another machine, which hwloc ignores if its value is wrong; null: none is set.
const char* ignored_variable() {
    if (std::getenv("HWLOC_THISSYSTEM") != nullptr) return nullptr;  // the user says that it is this machine
    for (const char* name : {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC"})
        if (const char* value = std::getenv(name); value != nullptr && *value != 0) return name;
    return nullptr;
}

/// Makes each CPU without a core a core of its own: some virtual machines show cores for a part of their CPUs.
void add_missing_cores(Topology& topology) {
    CpuSet covered;
    for (const CpuSet& core : topology.cores) covered.insert(core.begin(), core.end());
    for (const auto& node : topology.numa_nodes)
        for (const int cpu : node.cpus)
            if (!covered.contains(cpu)) topology.cores.push_back({cpu});
}

void restrict(std::vector<CpuSet>& sets, const CpuSet& allowed) {
    for (CpuSet& set : sets) set = common_cpus(set, allowed);
    std::erase_if(sets, [](const CpuSet& set) { return set.empty(); });
}

}  // namespace

Result<Topology> load_topology() {
    const WithoutPlugins without_plugins;
    hwloc_topology_t made = nullptr;
    if (::hwloc_topology_init(&made) != 0) {
        Error error = system_error("--numa-binding: cannot start hwloc", errno);
        error.message += ". Start the job without the option.";
        return error;
    }
    const Hwloc hwloc(made, ::hwloc_topology_destroy);
    // A NUMA node whose memory a cpuset denies still has CPUs, which the affinity mask decides on.
    ::hwloc_topology_set_flags(hwloc.get(), HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    if (::hwloc_topology_load(hwloc.get()) != 0) {
        Error error = system_error("hwloc cannot read the topology of this machine", errno);
        error.message += ". Does `lstopo` work here? If HWLOC_XMLFILE or HWLOC_SYNTHETIC is set, correct or unset it.";
        return error;
    }
    const bool is_this_machine = ::hwloc_topology_is_thissystem(hwloc.get()) != 0;
    if (const char* variable = ignored_variable(); is_this_machine && variable != nullptr) {
        return Error{Errc::kUsage, fmt::format("--numa-binding: hwloc cannot read {}={} and would show this machine "
                                               "instead. Correct or unset the variable.",
                                               variable, std::getenv(variable))};
    }
    Topology topology;
    topology.numa_nodes = numa_nodes_of(hwloc.get());
    topology.packages = packages_of(hwloc.get());
    topology.cores = sets_of(hwloc.get(), ::hwloc_get_type_or_below_depth(hwloc.get(), HWLOC_OBJ_CORE));
    add_missing_cores(topology);
    topology.core_complexes = core_complexes_of(hwloc.get());
    topology.is_this_machine = is_this_machine;
    return topology;
}

std::string description_variables() {
    std::vector<std::string> set;
    for (const char* name : {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC", "HWLOC_FSROOT", "HWLOC_THISSYSTEM"})
        if (const char* value = std::getenv(name); value != nullptr) set.push_back(fmt::format("{}={}", name, value));
    return set.empty() ? "a setting of hwloc" : list_of(set);
}

Topology restricted_to(const CpuSet& allowed, Topology topology) {
    for (auto& node : topology.numa_nodes) node.cpus = common_cpus(node.cpus, allowed);
    std::erase_if(topology.numa_nodes, [](const auto& node) { return node.cpus.empty(); });
    restrict(topology.packages, allowed);
    restrict(topology.core_complexes, allowed);
    restrict(topology.cores, allowed);
    return topology;
}

}  // namespace ddprun::launcher
