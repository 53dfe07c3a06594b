#include "launcher/scheduler/started_once.hpp"

#include <fmt/format.h>

#include <set>

#include "launcher/scheduler/open_mpi.hpp"
#include "launcher/scheduler/variables.hpp"

namespace ddprun::launcher {

Result<Allocation> allocation_started_once(std::string_view name, std::string_view title,
                                           std::vector<std::string> hosts, std::string_view file) {
    Allocation allocation;
    allocation.start_on_all = fmt::format("ddprun --hosts \"${}\" …", file);
    if (hosts.size() > 1) {
        return start_error(
            fmt::format("ddprun was started once, but {} has {} hosts, and each of them needs its own ddprun. Start it "
                        "with {}, which uses ssh, or with {}; or pass --standalone to use one host alone.",
                        title, hosts.size(), allocation.start_on_all, mpirun_line(static_cast<int>(hosts.size()))));
    }
    allocation.name = name;
    allocation.title = title;
    allocation.hosts = std::move(hosts);
    return allocation;
}

std::vector<std::string> distinct(const std::vector<std::string>& names) {
    std::set<std::string> seen;
    std::vector<std::string> kept;
    for (const std::string& name : names)
        if (seen.insert(name).second) kept.push_back(name);
    return kept;
}

}  // namespace ddprun::launcher
