#include "launcher/scheduler/allocation.hpp"

#include <algorithm>
#include <array>

#include "common/fnv.hpp"
#include "launcher/scheduler/flux.hpp"
#include "launcher/scheduler/kubernetes.hpp"
#include "launcher/scheduler/lsf.hpp"
#include "launcher/scheduler/mpich.hpp"
#include "launcher/scheduler/open_mpi.hpp"
#include "launcher/scheduler/pbs.hpp"
#include "launcher/scheduler/pmi.hpp"
#include "launcher/scheduler/slurm.hpp"

namespace ddprun::launcher {
namespace {

// Of the ports of daemons: below the range of outgoing connections (32768, by the kernel's default), which would take
// them by chance.
constexpr std::uint64_t kFirstPort = 20'000;
constexpr std::uint64_t kPorts = 12'768;
constexpr std::uint64_t kPortsOfStep = 8;

/// One kind of starter.
struct Starter {
    Result<std::optional<Allocation>> (*find)(const Environment&);
    std::optional<StepSize> (*step_size)(const Environment&);  ///< null: it starts ddprun once
};

// The inner one first: mpirun is started in jobs of the others, and flux in jobs of SLURM. PMI alone comes
// after mpiexec, flux and srun --mpi=pmi2, which set it, too, and before LSF and PBS, which do not.
constexpr std::array kStarters{
    Starter{find_open_mpi, open_mpi_step_size},
    Starter{find_mpich, mpich_step_size},
    Starter{find_flux, flux_step_size},
    Starter{find_slurm, slurm_step_size},
    Starter{find_pmi, pmi_step_size},
    Starter{find_lsf, nullptr},
    Starter{find_pbs, nullptr},
};

}  // namespace

Result<std::optional<Allocation>> find_allocation(const Environment& environment, std::optional<int> nodes) {
    for (const Starter& starter : kStarters) {
        auto found = starter.find(environment);
        if (!found || *found) return found;
    }
    return find_kubernetes(environment, nodes);
}

Result<std::optional<std::chrono::system_clock::time_point>> job_end(const Environment& environment) {
    return slurm_job_end(environment);
}

std::optional<StepSize> step_size(const Environment& environment) {
    for (const Starter& starter : kStarters) {
        const auto size = starter.step_size != nullptr ? starter.step_size(environment) : std::nullopt;
        if (size) return size;
    }
    return kubernetes_step_size(environment);
}

int nodes_of_batch_job(const Environment& environment) {
    return std::max({slurm_job_nodes(environment), lsf_job_nodes(environment), pbs_job_nodes(environment)});
}

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
