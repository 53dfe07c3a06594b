#include "launcher/host/limits.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "common/system/files.hpp"

namespace ddprun::launcher {
namespace {

// Open files of an agent: two pipes, a pidfd and the error file of each worker, and its own.
constexpr long kFilesPerWorker = 4;
constexpr long kFilesOfAgent = 32;
// Guard, agent and its two threads; once more for the launcher of emulated nodes, its guard and the daemon.
constexpr long kProcessesPerNode = 4;

std::optional<long> soft_limit(__rlimit_resource resource) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
    return static_cast<long>(limit.rlim_cur);
}

/// Returns pids.max of this process's control group (version 2 or 1).
std::optional<long> cgroup_limit() {
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
        const auto first = line.find(':');
        const auto second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (!controllers.empty() && controllers != "pids") continue;
        const std::string root = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/pids";
        if (const auto limit = number_in<long>(root + line.substr(second + 1) + "/pids.max")) return limit;
    }
    return std::nullopt;
}

Error too_little(const Demand& demand, long needed, std::string_view what, long limit, std::string_view remedy) {
    const std::string nodes = demand.nodes > 1 ? fmt::format(" on {} emulated nodes", demand.nodes) : "";
    return {Errc::kLimit, fmt::format("{} workers per node{} need about {} {}, and only {} are allowed here. {}, or "
                                      "start fewer workers (--nproc-per-node).",
                                      demand.workers, nodes, needed, what, limit, remedy)};
}

}  // namespace

ProcessLimits process_limits() {
    ProcessLimits limits;
    limits.open_files = soft_limit(RLIMIT_NOFILE);
    if (::geteuid() != 0) limits.user_processes = soft_limit(RLIMIT_NPROC);
    limits.cgroup_processes = cgroup_limit();
    limits.machine_pids = number_in<long>("/proc/sys/kernel/pid_max");
    return limits;
}

Result<void> check_limits(const Demand& demand, const ProcessLimits& limits) {
    const long files = demand.workers * (kFilesPerWorker + demand.log_files) + kFilesOfAgent;
    if (limits.open_files && files > *limits.open_files) {
        return too_little(demand, files, "open files", *limits.open_files, "Raise `ulimit -n`");
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

}  // namespace ddprun::launcher
