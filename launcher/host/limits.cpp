#include "launcher/host/limits.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "common/system/control_group.hpp"
#include "common/system/files.hpp"

namespace ddprun::launcher {
namespace {

// Open files of an agent: two pipes, a pidfd and the error file of each worker, and its own.
constexpr long kFilesPerWorker = 4;
constexpr long kFilesOfAgent = 32;
// Of the daemon: a connection of each agent, at least one of each worker, and those of its stores and itself.
constexpr long kStoreConnectionsPerWorker = 1;
constexpr long kFilesOfDaemon = 64;
// Guard, agent and its two threads; once more for the launcher of emulated nodes, its guard and the daemon.
constexpr long kProcessesPerNode = 4;

std::optional<long> limit_of(__rlimit_resource resource, rlim_t rlimit::*kind) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.*kind == RLIM_INFINITY) return std::nullopt;
    return static_cast<long>(limit.*kind);
}

/// Returns the least pids.max of this process's control group and those above it.
std::optional<long> cgroup_limit() {
    std::optional<long> least;
    for (const auto& folder : control_group_folders("pids")) {
        if (const auto limit = number_in<long>(folder / "pids.max")) least = std::min(least.value_or(*limit), *limit);
    }
    return least;
}

constexpr std::string_view kRaiseHardLimit =
    "raise it as root (nofile in /etc/security/limits.conf, LimitNOFILE= of a service, --ulimit of a container)";

Error too_little(const Demand& demand, long needed, std::string_view what, long limit, std::string_view remedy) {
    const std::string nodes = demand.nodes > 1 ? fmt::format(" on {} emulated nodes", demand.nodes) : "";
    return {Errc::kLimit, fmt::format("{} workers per node{} need about {} {}, and only {} are allowed here. {}, or "
                                      "start fewer workers (--nproc-per-node).",
                                      demand.workers, nodes, needed, what, limit, remedy)};
}

}  // namespace

ProcessLimits process_limits() {
    ProcessLimits limits;
    limits.open_files = limit_of(RLIMIT_NOFILE, &rlimit::rlim_cur);
    limits.max_open_files = limit_of(RLIMIT_NOFILE, &rlimit::rlim_max);
    if (::geteuid() != 0) limits.user_processes = limit_of(RLIMIT_NPROC, &rlimit::rlim_cur);
    limits.cgroup_processes = cgroup_limit();
    limits.machine_pids = number_in<long>("/proc/sys/kernel/pid_max");
    return limits;
}

Result<void> check_limits(const Demand& demand, const ProcessLimits& limits) {
    const long files = demand.workers * (kFilesPerWorker + demand.log_files) + kFilesOfAgent;
    if (limits.open_files && files > *limits.open_files) {
        const bool may_raise = !limits.max_open_files || files <= *limits.max_open_files;
        return too_little(demand, files, "open files", *limits.open_files,
                          may_raise ? std::string("Raise `ulimit -n`")
                                    : fmt::format("The hard limit is {}: {}", *limits.max_open_files, kRaiseHardLimit));
    }
    const long processes = static_cast<long>(demand.nodes) * (demand.workers + kProcessesPerNode) + kProcessesPerNode;
    const std::pair<std::optional<long>, std::string_view> kinds[]{
        {limits.user_processes, "Raise `ulimit -u`"},
        {limits.cgroup_processes, "Raise pids.max of the container or cgroup"},
        {limits.machine_pids, "Raise the sysctl kernel.pid_max"},
    };
    for (const auto& [limit, remedy] : kinds) {
        if (limit && processes > *limit) return too_little(demand, processes, "processes and threads", *limit, remedy);
    }
    return {};
}

Result<void> check_daemon_limits(const DaemonDemand& demand, const ProcessLimits& limits) {
    const long files = demand.nodes * (1 + kStoreConnectionsPerWorker * demand.workers) + kFilesOfDaemon;
    if (!limits.max_open_files || files <= *limits.max_open_files) return {};
    return Error{Errc::kLimit,
                 fmt::format("The rendezvous daemon of {} nodes with {} workers each needs about {} open files on this "
                             "host, and its hard limit is {}: {}, start the daemon's node on a host with a higher "
                             "limit, or start fewer workers.",
                             demand.nodes, demand.workers, files, *limits.max_open_files, kRaiseHardLimit)};
}

}  // namespace ddprun::launcher
