#include "launcher/scheduler/lsf.hpp"

#include <fmt/format.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/job_limits.hpp"
#include "common/text/number.hpp"
#include "launcher/scheduler/started_once.hpp"
#include "launcher/scheduler/variables.hpp"

namespace ddprun::launcher {
namespace {

constexpr const char* kLsfJob = "LSB_JOBID";
constexpr const char* kLsfHosts = "LSB_MCPU_HOSTS";

struct LsfHosts {
    std::vector<std::string> names;
    int slots = 0;  ///< of all hosts
};

/// Parses "n1 4 n2 4": each host with its slots.
Result<LsfHosts> lsf_hosts(const Variables& lsf) {
    const auto list = lsf.required(kLsfHosts);
    if (!list) return list.error();
    std::istringstream words{std::string(*list)};
    LsfHosts hosts;
    for (std::string name, count; words >> name;) {
        const auto slots = words >> count ? parse_number<int>(count) : std::nullopt;
        if (!slots || *slots < 1 || *slots > kMaxNodes * kMaxSlots || hosts.names.size() == kMaxNodes) {
            return start_error(
                fmt::format("{}={}: not a list of hosts with their slots. {}", kLsfHosts, *list, kNameTheNodes));
        }
        hosts.names.push_back(name);
        hosts.slots += *slots;
    }
    if (hosts.names.empty()) return start_error(fmt::format("{} names no host. {}", kLsfHosts, kNameTheNodes));
    hosts.names = distinct(hosts.names);
    return hosts;
}

}  // namespace

Result<std::optional<Allocation>> find_lsf(const Environment& environment) {
    const Variables lsf(environment, kLsfJob);
    if (!lsf.found()) return std::optional<Allocation>();
    auto hosts = lsf_hosts(lsf);
    if (!hosts) return hosts.error();
    const std::string job(*lsf.text(kLsfJob));
    const std::string index(lsf.text("LSB_JOBINDEX").value_or("0"));  // 0: not of a job array
    const std::string name = index == "0" ? job : fmt::format("{}-{}", job, index);
    const std::size_t count = hosts->names.size();
    auto allocation =
        allocation_started_once("lsf-" + name, "LSF job " + name, std::move(hosts->names), "LSB_DJOB_HOSTFILE");
    if (!allocation) return allocation.error();
    if (count == 1 && hosts->slots > 1 && lsf.text("LSF_PM_TASKID")) {
        return start_error(
            fmt::format("blaunch has started ddprun, perhaps once per slot, but ddprun is started once per host and "
                        "starts the workers itself. Start it in the job script without blaunch, with --nproc-per-node "
                        "{} for as many workers as the job has slots.",
                        hosts->slots));
    }
    return std::move(*allocation);
}

int lsf_job_nodes(const Environment& environment) {
    const Variables lsf(environment, kLsfJob);
    const auto hosts = lsf.found() ? lsf_hosts(lsf) : LsfHosts();
    return hosts ? static_cast<int>(hosts->names.size()) : 0;
}

}  // namespace ddprun::launcher
