#include "launcher/scheduler/mpich.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

#include "common/system/write_all.hpp"
#include "launcher/scheduler/mpi_start.hpp"

namespace ddprun::launcher {
namespace {

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

constexpr MpiStarter kHydra{.program = "mpiexec",
                            .sign = "MPI_LOCALNRANKS",
                            .tasks = "PMI_SIZE",
                            .local_tasks = "MPI_LOCALNRANKS",
                            .rank = "PMI_RANK",
                            .line = mpiexec_line,
                            .name = name_of_mpiexec};

}  // namespace

Result<std::optional<Allocation>> find_mpich(const Environment& environment) { return find_mpi(kHydra, environment); }

std::optional<StepSize> mpich_step_size(const Environment& environment) { return mpi_step_size(kHydra, environment); }

}  // namespace ddprun::launcher
