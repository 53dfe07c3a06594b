#include "launcher/plan.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "common/exit_codes.hpp"
#include "common/job_limits.hpp"
#include "launcher/host/gpus.hpp"
#include "launcher/host/limits.hpp"
#include "launcher/host/slots.hpp"
#include "launcher/host/this_host.hpp"
#include "launcher/local_cluster.hpp"
#include "launcher/output_settings.hpp"
#include "launcher/report_files.hpp"

namespace ddprun::launcher {
namespace {

// As a resolver waits for one name server (resolv.conf(5): two attempts of 5 s). The agent looks the name up again.
constexpr std::chrono::seconds kLookUpTimeout{10};

int code_of_program_error(const Error& error) {
    return error.code == Errc::kNotFound ? exit_code::kProgramNotFound : exit_code::kCannotExecute;
}

Demand demand_of(const Plan& plan) {
    return {plan.slots, plan.options.local_nodes ? plan.options.nodes.max : 1, log_files_per_worker(plan.options)};
}

/// Counts only what the scheduler gave: without control groups a job sees the devices and CPUs of other jobs, too.
void limit_to(const Allocation& allocation, Machine& machine) {
    if (allocation.cpus) machine.cpus = std::min(machine.cpus, std::max(1, *allocation.cpus));
    if (allocation.gpus) machine.gpus = std::min(machine.gpus, *allocation.gpus);
}

/// Returns whether the daemon of the job is to run on this machine. At a meeting point one node of many will host it.
bool hosts_daemon(const Placement& placement) {
    return placement.part != Placement::Part::kJoin && placement.part != Placement::Part::kMeet;
}

/// Returns the number of workers of each program. Errors: those of worker_count(), and more workers than a node has.
Result<std::vector<int>> workers_of_programs(const std::vector<Program>& programs, const Machine& machine) {
    std::vector<int> slots;
    std::int64_t sum = 0;
    for (const Program& program : programs) {
        const auto count = worker_count(program.slots, machine);
        if (!count && programs.size() > 1)
            return with_context(fmt::format("program '{}'", program.command.front()), count.error());
        if (!count) return count.error();
        slots.push_back(*count);
        sum += *count;
    }
    if (sum <= kMaxSlots) return slots;
    return Error{
        Errc::kLimit,
        fmt::format("--nproc-per-node {}: {} workers in all, but a node has at most {}. Run the others on more "
                    "nodes (--nnodes).",
                    fmt::join(slots, " and "), sum, kMaxSlots)};
}

/// Returns the numeric address of --local-addr; nullopt: it was not given. Errors: Errc::kUsage.
Result<std::optional<std::string>> local_address(const Options& options) {
    if (!options.local_addr) return std::optional<std::string>();
    auto here = address_here(*options.local_addr, look_up(*options.local_addr, "Pass a numeric address"), this_host());
    if (here && !is_wildcard(*here)) return here;
    return Error{Errc::kUsage,
                 fmt::format("--local-addr {}: not an address of this machine. Pass one that `ip address` shows here, "
                             "or leave the option out.",
                             *options.local_addr)};
}

}  // namespace

std::vector<std::string> look_up(const std::string& host, std::string_view remedy) {
    auto addresses = addresses_of(host, kLookUpTimeout);
    if (addresses) return std::move(*addresses);
    spdlog::warn("{}. {}", addresses.error().message, remedy);
    return {};
}

std::optional<Refusal> prepare(Plan& plan, const Environment& environment) {
    const Options& options = plan.options;
    Machine machine = this_machine(environment);
    if (options.allocation) limit_to(*options.allocation, machine);
    plan.cpus = machine.cpus;
    auto slots = workers_of_programs(options.programs, machine);
    if (!slots) return Refusal{slots.error(), exit_code::kUsage};
    plan.slots = std::accumulate(slots->begin(), slots->end(), 0);
    note_absent_ranks(plan.options, plan.slots);
    note_unknown_variables(plan.options);
    note_absent_terminal(plan.options);
    plan.device_variables = device_variables(options, machine, environment);
    if (const Result<void> enough = check_visible_devices(plan.device_variables, plan.slots, environment); !enough)
        return Refusal{enough.error(), exit_code::kUsage};
    if (options.local_nodes && options.nodes.max > kMaxLocalNodes) {
        return Refusal{
            {Errc::kLimit, fmt::format("--nnodes {}: --local-nodes emulates at most {} nodes on one machine.",
                                       options.nodes.max, kMaxLocalNodes)},
            exit_code::kUsage};
    }
    auto resources = assign_resources(options, plan.slots, environment);
    if (!resources) {
        const bool usage = resources.error().code == Errc::kUsage;
        return Refusal{resources.error(), usage ? exit_code::kUsage : exit_code::kInfrastructure};
    }
    plan.resources = std::move(*resources);
    for (std::size_t index = 0; index < options.programs.size(); ++index) {
        auto command = worker_command(options.programs[index], environment, search_path(environment, own_folder()));
        if (!command) return Refusal{command.error(), code_of_program_error(command.error())};
        plan.programs.push_back({std::move(*command), slots->at(index)});
    }
    plan.launch = {typed_command(options.programs), command_hash(options.programs), user_name(::getuid()), ::getuid()};
    if (const Result<void> usable = prepare_log_dir(options); !usable)
        return Refusal{usable.error(), exit_code::kUsage};
    auto events = open_events(options.dry_run ? "" : options.events.value_or(""));
    if (!events) return Refusal{events.error(), exit_code::kUsage};
    plan.events = std::move(*events);
    if (const Result<void> enough = check_limits(demand_of(plan), process_limits()); !enough)
        return Refusal{enough.error(), exit_code::kInfrastructure};
    auto placement = place(options, [&plan](const std::string& host) {
        plan.endpoint_addresses = look_up(host,
                                          "Pass a numeric address, or is_host=1 in --rdzv-conf on the node that hosts "
                                          "the rendezvous, is_host=0 on the others");
        return address_here(host, plan.endpoint_addresses, this_host(), plan.options.nodes.max == 1);
    });
    if (!placement) return Refusal{placement.error(), exit_code::kUsage};
    plan.placement = std::move(*placement);
    if (hosts_daemon(plan.placement)) {
        const Result<void> enough = check_daemon_limits({options.nodes.min, plan.slots}, process_limits());
        if (!enough) return Refusal{enough.error(), exit_code::kInfrastructure};
    }
    auto local = local_address(options);
    if (!local) return Refusal{local.error(), exit_code::kUsage};
    plan.local_address = std::move(*local);
    return std::nullopt;
}

}  // namespace ddprun::launcher
