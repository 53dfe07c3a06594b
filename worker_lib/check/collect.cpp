#include "worker_lib/check/collect.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "common/system/control_group.hpp"
#include "common/system/cpu_set.hpp"
#include "common/system/files.hpp"
#include "ddp/version.hpp"
#include "worker_lib/check/gpus.hpp"

namespace fs = std::filesystem;

namespace ddp::check {
namespace {

constexpr const char* kBootId = "/proc/sys/kernel/random/boot_id";

std::string hostname() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown-host";
}

std::string first_line(const fs::path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

/// Returns the CPUs that the control group's quota gives; nullopt: there is no quota.
std::optional<double> cpu_quota() {
    std::optional<double> least;
    for (const fs::path& folder : ddprun::control_group_folders("cpu")) {
        double quota = 0;
        double period = 0;
        std::istringstream version_2(first_line(folder / "cpu.max"));  // "max 100000" or "200000 100000"
        if (!(version_2 >> quota >> period)) {
            quota = ddprun::number_in<double>(folder / "cpu.cfs_quota_us").value_or(0);
            period = ddprun::number_in<double>(folder / "cpu.cfs_period_us").value_or(0);
        }
        if (quota > 0 && period > 0) least = std::min(least.value_or(quota / period), quota / period);
    }
    return least;
}

/// Returns a number of /proc/meminfo, in bytes.
std::int64_t memory_of(std::string_view field) {
    std::ifstream file("/proc/meminfo");
    std::string name;
    std::int64_t kib = 0;
    for (std::string unit; file >> name >> kib && std::getline(file, unit);)
        if (name == field) return kib << 10;
    return 0;
}

void collect_memory(Node& node) {
    node.memory_bytes = memory_of("MemTotal:");
    node.free_memory_bytes = memory_of("MemAvailable:");
    for (const fs::path& folder : ddprun::control_group_folders("memory")) {
        auto limit = ddprun::number_in<std::int64_t>(folder / "memory.max");
        auto used = ddprun::number_in<std::int64_t>(folder / "memory.current");
        if (!limit) limit = ddprun::number_in<std::int64_t>(folder / "memory.limit_in_bytes");
        if (!used) used = ddprun::number_in<std::int64_t>(folder / "memory.usage_in_bytes");
        if (!limit) continue;
        node.memory_bytes = std::min(node.memory_bytes, *limit);
        node.free_memory_bytes = std::clamp<std::int64_t>(*limit - used.value_or(0), 0, node.free_memory_bytes);
    }
    struct statvfs shm {};
    if (::statvfs("/dev/shm", &shm) == 0) {
        node.shm_bytes = static_cast<std::int64_t>(shm.f_blocks * shm.f_frsize);
        node.free_shm_bytes = static_cast<std::int64_t>(shm.f_bavail * shm.f_frsize);
    }
}

std::optional<std::int64_t> limit_of(__rlimit_resource resource) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
    return static_cast<std::int64_t>(limit.rlim_cur);
}

std::vector<NetworkInterface> collect_interfaces() {
    std::map<std::string, NetworkInterface> found;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return {};
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        const bool usable = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
        const int family = entry->ifa_addr != nullptr ? entry->ifa_addr->sa_family : AF_UNSPEC;
        if (!usable || (family != AF_INET && family != AF_INET6)) continue;
        NetworkInterface& interface = found[entry->ifa_name];
        const std::string text = family == AF_INET ? "ipv4" : "ipv6";
        if (interface.family.empty())
            interface.family = text;
        else if (interface.family.find(text) == std::string::npos)
            interface.family = "ipv4+ipv6";
    }
    ::freeifaddrs(list);
    std::vector<NetworkInterface> interfaces;
    for (auto& [name, interface] : found) {
        const fs::path folder = fs::path("/sys/class/net") / name;
        std::error_code ignored;  // an interface without the folder is not physical
        interface.name = name;
        interface.physical = fs::exists(folder / "device", ignored);
        interface.mtu = ddprun::number_in<int>(folder / "mtu").value_or(0);
        const auto speed = ddprun::number_in<int>(folder / "speed");
        if (speed && *speed > 0) interface.speed_mbit = speed;  // -1: unknown
        interfaces.push_back(std::move(interface));
    }
    return interfaces;
}

std::vector<RdmaPort> collect_rdma_ports() {
    std::vector<RdmaPort> ports;
    std::error_code ec;
    for (const auto& adapter : fs::directory_iterator("/sys/class/infiniband", ec)) {
        for (const auto& port : fs::directory_iterator(adapter.path() / "ports", ec)) {
            const std::string state = first_line(port.path() / "state");  // "4: ACTIVE"
            ports.push_back({.name = (adapter.path().filename() / port.path().filename()).string(),
                             .state = state.substr(std::min(state.size(), state.find(' ') + 1)),
                             .rate = first_line(port.path() / "rate")});
        }
    }
    std::ranges::sort(ports, {}, &RdmaPort::name);
    return ports;
}

}  // namespace

std::string host_identity() { return first_line(kBootId) + "/" + hostname(); }

Node collect_facts() {
    Node node;
    node.host = hostname();
    node.boot_id = first_line(kBootId);
    const char* const name = std::getenv("DDPRUN_NODE_NAME");
    node.name = name != nullptr ? name : node.host;
    node.version = version();
    utsname kernel{};
    if (::uname(&kernel) == 0) node.kernel = kernel.release;
    node.cpus = ddprun::allowed_cpus();
    if (const auto quota = cpu_quota()) node.cpus = std::min(node.cpus, *quota);
    (void)::getloadavg(&node.load, 1);
    collect_memory(node);
    node.limits = {.open_files = limit_of(RLIMIT_NOFILE),
                   .locked_bytes = limit_of(RLIMIT_MEMLOCK),
                   .core_bytes = limit_of(RLIMIT_CORE),
                   .processes = limit_of(RLIMIT_NPROC)};
    node.interfaces = collect_interfaces();
    node.rdma_ports = collect_rdma_ports();
    GpuFacts gpus = query_gpus();
    node.gpus = std::move(gpus.gpus);
    node.driver = std::move(gpus.driver);
    node.cuda = std::move(gpus.cuda);
    node.gpu_note = std::move(gpus.note);
    node.nccl = query_nccl();
    return node;
}

}  // namespace ddp::check
