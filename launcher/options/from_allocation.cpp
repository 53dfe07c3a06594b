#include "launcher/options/from_allocation.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "common/text/number.hpp"

namespace ddprun::launcher {
namespace {

/// A worker of ddprun has this variable. A ddprun that it starts runs beside the job that has the allocation.
constexpr const char* kSessionVariable = "DDPRUN_SESSION";

Error world_error(std::string text) { return {Errc::kUsage, std::move(text)}; }

bool names_endpoint(const Options& options) {
    return options.rdzv_endpoint || options.master_addr || options.master_port;
}

/// Returns whether the user has named the nodes of the job, so that the scheduler has nothing to add.
bool names_nodes(const Options& options, const Given& given) {
    if (options.standalone || options.local_nodes || options.as_local_node) return true;
    const bool meets = names_endpoint(options) || uses_etcd(options) || options.rdzv_dir;
    return given.nodes && (meets || options.nodes.max == 1);
}

Result<void> check_default(const Allocation& allocation) {
    const int nodes = static_cast<int>(allocation.hosts.size());
    if (nodes >= allocation.job_nodes) return {};
    return world_error(
        fmt::format("{} has {} of the {} nodes of the job. Pass --nnodes {} if that is intended; to use all, start "
                    "ddprun with {}.",
                    allocation.title, nodes, allocation.job_nodes, nodes, allocation.start_on_all));
}

Result<void> check_given(const Options& options, const Allocation& allocation) {
    const int nodes = static_cast<int>(allocation.hosts.size());
    if (options.nodes.min > nodes) {
        return world_error(
            fmt::format("--nnodes {}: {} has {}. Pass --nnodes {}, or give the step more nodes (srun --nodes).",
                        options.nodes.min, allocation.title, counted(nodes, "node"), nodes));
    }
    const bool is_fixed = options.nodes.min == options.nodes.max;  // else the others wait as spares
    if (is_fixed && options.nodes.max < nodes && !options.spare) {
        return world_error(
            fmt::format("--nnodes {}: {} has {} nodes. Pass --spare if the others are to wait until a node is lost, or "
                        "leave out --nnodes to use all.",
                        options.nodes.max, allocation.title, nodes));
    }
    return {};
}

}  // namespace

Result<void> complete_from_allocation(Options& options, const Given& given, const Environment& environment) {
    if (names_nodes(options, given) || environment.contains(kSessionVariable)) return {};
    auto found = find_allocation(environment);
    if (!found) return found.error();
    if (!*found) return {};
    Allocation& allocation = **found;
    const Result<void> checked = given.nodes ? check_given(options, allocation) : check_default(allocation);
    if (!checked) return checked;
    const int nodes = static_cast<int>(allocation.hosts.size());
    if (!given.nodes) options.nodes = {nodes, nodes};
    if (!given.workers && allocation.gpus.value_or(0) > 0)
        options.programs.front().slots = {Slots::Kind::kCount, *allocation.gpus};
    if (!options.rdzv_id && !names_endpoint(options)) options.rdzv_id = allocation.name;
    options.allocation = std::move(allocation);
    return {};
}

}  // namespace ddprun::launcher
