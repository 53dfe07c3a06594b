#include "launcher/options/from_allocation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/scheduler_step.hpp"
#include "common/text/number.hpp"

namespace ddprun::launcher {
namespace {

Error world_error(std::string text) { return {Errc::kUsage, std::move(text)}; }

bool names_endpoint(const Options& options) {
    return options.rdzv_endpoint || options.master_addr || options.master_port;
}

bool meets_elsewhere(const Options& options) { return uses_etcd(options) || options.rdzv_dir.has_value(); }

/// Returns whether the user has named the nodes of the job, so that the scheduler has nothing to add.
bool names_nodes(const Options& options, const Given& given) {
    return given.nodes && (names_endpoint(options) || meets_elsewhere(options) || options.nodes.max == 1);
}

/// Returns whether this ddprun runs beside the job that has the allocation: a worker of that job has started it.
bool is_inside_job(const Environment& environment) {
    const auto outer = environment.find(kSchedulerStepVariable);
    return outer != environment.end() && outer->second == scheduler_step(environment);
}

/// Returns whether each node has an endpoint of its own, so that one with --nnodes 1:N begins alone.
bool names_loopback(const Options& options) {
    if (!names_endpoint(options) || meets_elsewhere(options)) return false;
    if (options.rdzv_endpoint) return !may_leave_host(*options.rdzv_endpoint);
    return !may_leave_host({options.master_addr.value_or("localhost"), 0});
}

/// Refuses a job that the user has named if each of several tasks of a step would run it as a world of its own.
Result<void> check_named(const Options& options, const Environment& environment) {
    const std::optional<StepSize> step = step_size(environment);
    if (!step || step->tasks == 1 || options.nodes.min > 1) return {};
    const bool waits_as_spare = options.spare && (names_endpoint(options) || meets_elsewhere(options));
    const bool is_alone = options.nodes.max == 1 && !waits_as_spare;
    if (!is_alone && !(step->nodes > 1 && names_loopback(options))) return {};
    return world_error(fmt::format(
        "{} has started ddprun {}{} times, and each would train alone. For one job of all, {}; for a job of each, pass "
        "--standalone.",
        step->starter, step->is_minimum ? "at least " : "", step->tasks,
        step->is_minimum ? "pass --nnodes N, the number of all, and no endpoint"
                         : "leave out --nnodes and the endpoint"));
}

Result<void> check_default(const Allocation& allocation) {
    if (allocation.nodes >= allocation.job_nodes) return {};
    return world_error(
        fmt::format("{0} has {1} of the {2} nodes of the job. Pass --nnodes {1} if that is intended; to use all, start "
                    "ddprun with {3}.",
                    allocation.title, allocation.nodes, allocation.job_nodes, allocation.start_on_all));
}

Result<void> check_given(const Options& options, const Allocation& allocation) {
    const int nodes = allocation.nodes;
    if (options.nodes.min > nodes) {
        return world_error(fmt::format("--nnodes {}: {} has {}. Pass --nnodes {}, or start ddprun on more nodes.",
                                       options.nodes.min, allocation.title, counted(nodes, "node"), nodes));
    }
    const bool is_fixed = options.nodes.min == options.nodes.max;  // else the others wait as spares
    if (is_fixed && options.nodes.max < nodes && !options.spare) {
        return world_error(
            fmt::format("--nnodes {}: {} has {} nodes. Pass --spare if the others are to wait until a node is lost, or "
                        "leave out --nnodes to use all.",
                        options.nodes.max, allocation.title, nodes));
    }
    if (!is_fixed && allocation.hosts.empty() && 2 * options.nodes.min <= nodes) {
        const int majority = nodes / 2 + 1;
        return world_error(fmt::format(
            "--nnodes {}:{}: {} names no hosts, so its {} nodes meet in the home directory; if they do not share it, "
            "{} of them could start a job without the others. Pass --rdzv-endpoint HOST:PORT to all nodes, or more "
            "than half of them as the minimum: --nnodes {}:{}.",
            options.nodes.min, options.nodes.max, allocation.title, nodes, options.nodes.min, majority,
            std::max(options.nodes.max, majority)));
    }
    return {};
}

/// Refuses --hosts where each of several tasks, or each host, would run the job as one of its own.
Result<void> check_hosts(const Options& options, const Environment& environment) {
    const std::optional<StepSize> step = step_size(environment);
    if (!options.as_ssh_node && step && step->tasks > 1) {  // the hosts may inherit the variables
        return world_error(
            fmt::format("ddprun --hosts was started {} times, and each would start the whole job. Start it once, or "
                        "leave out --hosts.",
                        step->tasks));
    }
    if (options.hosts.size() > 1 && names_loopback(options))
        return world_error(
            "--hosts with an endpoint on localhost: each host would train alone. Leave out the endpoint.");
    return {};
}

/// Returns the nodes of --hosts, or those that a starter gave.
Result<std::optional<Allocation>> allocation_for(const Options& options, const Given& given,
                                                 const Environment& environment) {
    if (options.hosts.empty())
        return find_allocation(environment, given.nodes ? std::optional(options.nodes.max) : std::nullopt);
    auto hosts = allocation_of_hosts(options.hosts, options.as_ssh_node);
    return hosts ? Result<std::optional<Allocation>>(std::move(*hosts)) : hosts.error();
}

}  // namespace

Result<void> complete_from_allocation(Options& options, const Given& given, const Environment& environment) {
    const bool by_ssh = !options.hosts.empty();
    if (by_ssh && (options.standalone || options.local_nodes)) {
        return world_error(fmt::format("--hosts and {} exclude each other. Leave one out.",
                                       options.standalone ? "--standalone" : "--local-nodes"));
    }
    if (options.standalone || options.local_nodes || options.as_local_node) return {};
    if (by_ssh) {
        const Result<void> checked = check_hosts(options, environment);
        if (!checked) return checked;
    }
    if (!by_ssh && is_inside_job(environment)) return {};
    if (!by_ssh && names_nodes(options, given)) return check_named(options, environment);
    auto found = allocation_for(options, given, environment);
    if (!found) return found.error();
    if (!*found) return {};
    Allocation& allocation = **found;
    const Result<void> checked = given.nodes ? check_given(options, allocation) : check_default(allocation);
    if (!checked) return checked;
    if (!given.nodes) options.nodes = {allocation.nodes, allocation.nodes};
    if (!given.workers && allocation.gpus.value_or(0) > 0)
        options.programs.front().slots = {Slots::Kind::kCount, *allocation.gpus};
    const std::optional<int> slots =
        by_ssh ? options.hosts.at(static_cast<std::size_t>(allocation.node)).slots : std::nullopt;
    if (slots) options.programs.front().slots = {Slots::Kind::kCount, *slots};
    if (!options.rdzv_id && !names_endpoint(options) && !allocation.name.empty()) options.rdzv_id = allocation.name;
    options.allocation = std::move(allocation);
    return {};
}

}  // namespace ddprun::launcher
