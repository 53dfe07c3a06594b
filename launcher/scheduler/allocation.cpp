#include "launcher/scheduler/allocation.hpp"

#include "common/fnv.hpp"
#include "launcher/scheduler/slurm.hpp"

namespace ddprun::launcher {
namespace {

// Of the ports of daemons: below the range of outgoing connections (32768, by the kernel's default), which would take
// them by chance.
constexpr std::uint64_t kFirstPort = 20'000;
constexpr std::uint64_t kPorts = 12'768;
constexpr std::uint64_t kPortsOfStep = 8;

}  // namespace

Result<std::optional<Allocation>> find_allocation(const Environment& environment) { return find_slurm(environment); }

Result<std::optional<std::chrono::system_clock::time_point>> job_end(const Environment& environment) {
    return slurm_job_end(environment);
}

std::optional<StepSize> step_size(const Environment& environment) { return slurm_step_size(environment); }

std::vector<std::uint16_t> ports_of_step(const std::string& name) {
    Fnv64 hash;
    hash.add(name);
    const std::uint64_t first = hash.value() % kPorts;
    const std::uint64_t stride =
        1 + hash.value() / kPorts % (kPorts / kPortsOfStep - 1);  // eight of them stay distinct
    std::vector<std::uint16_t> ports;
    for (std::uint64_t i = 0; i < kPortsOfStep; ++i)
        ports.push_back(static_cast<std::uint16_t>(kFirstPort + (first + i * stride) % kPorts));
    return ports;
}

}  // namespace ddprun::launcher
