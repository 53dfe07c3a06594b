#include "launcher/scheduler/mpich.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "common/job_limits.hpp"
#include "common/system/write_all.hpp"
#include "launcher/scheduler/several_tasks.hpp"
#include "launcher/scheduler/variables.hpp"

namespace ddprun::launcher {
namespace {

constexpr const char* kHydraLocalTasks = "MPI_LOCALNRANKS";
constexpr int kHydraLimitMs = 5'000;  // of a process of this host
constexpr std::size_t kMaxAnswerBytes = 1'024;

/// Intel MPI binds processes unless I_MPI_PIN is off, and MPICH does not.
std::string mpiexec_line(int nodes) { return fmt::format("mpiexec -n {} -ppn 1 ddprun …", nodes); }

/// Returns the line that the process manager answers to `request`; empty: it does not answer.
std::string ask_hydra(int fd, std::string_view request) {
    if (write_all(fd, request) != request.size()) return "";
    std::string answer;
    std::array<char, kMaxAnswerBytes> bytes{};
    while (answer.find('\n') == std::string::npos && answer.size() < kMaxAnswerBytes) {
        pollfd readable{fd, POLLIN, 0};
        if (::poll(&readable, 1, kHydraLimitMs) != 1) return "";
        const ssize_t got = ::read(fd, bytes.data(), bytes.size());
        if (got <= 0) return "";
        answer.append(bytes.data(), static_cast<std::size_t>(got));
    }
    return answer.substr(0, answer.find('\n'));
}

/// Returns the name of the job, by the wire protocol of PMI-1: "cmd=my_kvsname kvsname=kvs_4711_0_1930142889_n1". No
/// variable has one. The request changes nothing: the process counts as one without MPI, as before.
Result<std::string> name_of_mpiexec(const Variables& mpi) {
    const auto fd = mpi.number("PMI_FD", 0, 1'000'000);
    if (!fd) return fd.error();
    constexpr std::string_view kKey = " kvsname=";
    const std::string answer = ask_hydra(*fd, "cmd=get_my_kvsname\n");
    const auto key = answer.find(kKey);
    const std::string name = key == std::string::npos ? "" : answer.substr(key + kKey.size());
    if (!name.empty()) return fmt::format("mpiexec-{}", name.substr(0, name.find(' ')));
    return start_error(
        fmt::format("mpiexec does not answer with the name of the job (PMI_FD={}), so its nodes cannot "
                    "meet. {}",
                    *fd, kNameTheNodes));
}

}  // namespace

Result<std::optional<Allocation>> find_mpich(const Environment& environment) {
    const Variables mpi(environment, kHydraLocalTasks);
    if (!mpi.found()) return std::optional<Allocation>();
    const auto tasks = mpi.number("PMI_SIZE", 1, kMaxTasks);
    const auto local_tasks = mpi.number(kHydraLocalTasks, 1, kMaxSlots);
    if (!tasks || !local_tasks) return tasks ? local_tasks.error() : tasks.error();
    const int job_nodes = std::max(nodes_of_tasks(*tasks, *local_tasks), nodes_of_batch_job(environment));
    if (*local_tasks > 1) return several_tasks_error("mpiexec", *local_tasks, mpiexec_line(job_nodes));
    if (job_nodes == 1) return std::optional<Allocation>();
    const auto rank = mpi.number("PMI_RANK", 0, *tasks - 1);
    auto name = name_of_mpiexec(mpi);
    if (!rank || !name) return rank ? name.error() : rank.error();
    Allocation allocation;
    allocation.name = std::move(*name);
    allocation.title = "this mpiexec";
    allocation.nodes = *tasks;
    allocation.node = *rank;
    allocation.job_nodes = job_nodes;
    allocation.start_on_all = mpiexec_line(job_nodes);
    return allocation;
}

std::optional<StepSize> mpich_step_size(const Environment& environment) {
    const Variables mpi(environment, kHydraLocalTasks);
    const auto tasks = mpi.number("PMI_SIZE", 1, kMaxTasks);
    const auto local_tasks = mpi.number(kHydraLocalTasks, 1, kMaxSlots);
    if (!tasks || !local_tasks) return std::nullopt;
    return StepSize{"mpiexec", *tasks, nodes_of_tasks(*tasks, *local_tasks)};
}

}  // namespace ddprun::launcher
