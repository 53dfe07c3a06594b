// The variables are those of Open MPI 4.1.4 and MPICH 4.0.2, printed by processes of mpirun and mpiexec.
#include <sys/socket.h>

#include <array>
#include <thread>

#include "common/scheduler_step.hpp"
#include "common/system/unique_fd.hpp"
#include "launcher/scheduler/mpich.hpp"
#include "launcher/scheduler/open_mpi.hpp"
#include "tests/catch.hpp"
#include "tests/unit/launcher/scheduler/parsed.hpp"

namespace ddprun::launcher {
namespace {

using Catch::Contains;

/// The variables of the second of `tasks` processes of Open MPI, of which `local_tasks` are on its node.
Environment open_mpi(int tasks, int local_tasks) {
    return {{"OMPI_COMM_WORLD_SIZE", std::to_string(tasks)},
            {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(local_tasks)},
            {"OMPI_COMM_WORLD_RANK", tasks == 1 ? "0" : "1"},
            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
            {"PMIX_NAMESPACE", "1504509953"},
            {"PMIX_RANK", tasks == 1 ? "0" : "1"},
            {"OMPI_MCA_orte_hnp_uri", "1504509952.0;tcp://192.0.2.2:35047"}};
}

/// Hydra's end of PMI_FD, which answers one request.
class FakeHydra {
public:
    explicit FakeHydra(std::string answer) : answer_(std::move(answer)) {
        std::array<int, 2> ends{};
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
        own_ = UniqueFd(ends[0]);
        of_process_ = UniqueFd(ends[1]);
        thread_ = std::thread([this] {
            std::array<char, 100> bytes{};
            const ssize_t got = ::read(own_.get(), bytes.data(), bytes.size());
            if (got > 0) request_.assign(bytes.data(), static_cast<std::size_t>(got));
            (void)::send(own_.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL);
            own_.reset();
        });
    }
    ~FakeHydra() { (void)request(); }
    FakeHydra(const FakeHydra&) = delete;
    FakeHydra& operator=(const FakeHydra&) = delete;

    /// Returns the variables of the second of `tasks` processes, of which `local_tasks` are on its node.
    [[nodiscard]] Environment variables(int tasks, int local_tasks) const {
        return {{"PMI_SIZE", std::to_string(tasks)},
                {"PMI_RANK", tasks == 1 ? "0" : "1"},
                {"PMI_FD", std::to_string(of_process_.get())},
                {"MPI_LOCALNRANKS", std::to_string(local_tasks)},
                {"MPI_LOCALRANKID", "0"}};
    }
    /// Waits for the end of the conversation. Returns the request.
    std::string request() {
        ::shutdown(of_process_.get(), SHUT_RDWR);
        if (thread_.joinable()) thread_.join();
        return request_;
    }

private:
    std::string answer_;
    std::string request_;
    UniqueFd own_;
    UniqueFd of_process_;
    std::thread thread_;
};

TEST_CASE("mpirun with one ddprun per node needs no option", "[launcher]") {
    const Options two = options(open_mpi(2, 1));
    CHECK(two.nodes == NodeRange{2, 2});
    REQUIRE(two.allocation.has_value());
    CHECK(two.allocation->hosts.empty());
    CHECK(two.allocation->node == 1);
    CHECK(two.allocation->job_nodes == 2);
    CHECK(two.rdzv_id == two.allocation->name);
    CHECK_THAT(two.allocation->name, Catch::StartsWith("mpirun-"));
    Environment other = with(open_mpi(2, 1), {{"OMPI_MCA_orte_hnp_uri", "1504509952.0;tcp://192.0.2.3:35047"}});
    CHECK(options(other).rdzv_id != two.rdzv_id);
    Environment five = with(open_mpi(2, 1), {{"PMIX_NAMESPACE", "prterun-n1-1234@1"}});
    five.erase("OMPI_MCA_orte_hnp_uri");  // Open MPI 5 has none
    CHECK_THAT(options(five).rdzv_id.value_or(""), Catch::StartsWith("mpirun-"));
}

TEST_CASE("one process of mpirun or mpiexec is a job of one node", "[launcher]") {
    const FakeHydra hydra("");
    for (const Environment& one : {open_mpi(1, 1), hydra.variables(1, 1)}) {
        CHECK(options(one).nodes == NodeRange{1, 1});
        CHECK_FALSE(options(one).allocation.has_value());
    }
}

TEST_CASE("several ddprun of mpirun on a node are refused with the line to use", "[launcher]") {
    CHECK(refusal(open_mpi(4, 4)) ==
          "mpirun has started 4 tasks on a node, but ddprun is started once per node and starts the workers itself. "
          "Start it with mpirun -np 1 --map-by ppr:1:node --bind-to none ddprun …, with --nproc-per-node 4 for as many "
          "workers.");
    CHECK_THAT(refusal(open_mpi(5, 2)), Contains("Start it with mpirun -np 3 --map-by ppr:1:node"));
    const FakeHydra hydra("");
    CHECK_THAT(refusal(hydra.variables(4, 4)), Contains("mpiexec has started 4 tasks on a node") &&
                                                   Contains("Start it with mpiexec -n 1 -ppn 1 ddprun"));
}

TEST_CASE("mpirun on fewer nodes than the batch job around it is refused", "[launcher]") {
    const Environment job{{"SLURM_JOB_ID", "71"},
                          {"SLURM_JOB_NUM_NODES", "2"},
                          {"SLURM_JOB_NODELIST", "n[1-2]"},
                          {"SLURMD_NODENAME", "n1"}};
    CHECK(refusal(with(job, open_mpi(1, 1))) ==
          "this mpirun has 1 of the 2 nodes of the job. Pass --nnodes 1 if that is intended; to use all, start ddprun "
          "with mpirun -np 2 --map-by ppr:1:node --bind-to none ddprun ….");
    CHECK(refusal(with(job, open_mpi(1, 1)), {"--nnodes", "1", "train"}) == "");
    CHECK_THAT(refusal(with(job, open_mpi(2, 2))), Contains("Start it with mpirun -np 2 --map-by"));
    CHECK(options(with(job, open_mpi(2, 1))).nodes == NodeRange{2, 2});
    const Environment lsf{{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "n1 4 n2 4"}};
    CHECK_THAT(refusal(with(lsf, open_mpi(1, 1))), Contains("this mpirun has 1 of the 2 nodes of the job"));
    const FakeHydra hydra("cmd=my_kvsname kvsname=kvs_1\n");
    CHECK_THAT(refusal(with(job, hydra.variables(1, 1))), Contains("this mpiexec has 1 of the 2 nodes of the job"));
}

TEST_CASE("the variables of mpirun count before those of the SLURM step that carries its daemons", "[launcher]") {
    // A process on a node to which mpirun has sent its daemon with srun: a step of one task per other node.
    const Environment daemons{{"SLURM_JOB_ID", "71"},
                              {"SLURM_JOB_NUM_NODES", "3"},
                              {"SLURM_STEP_ID", "0"},
                              {"SLURM_STEP_NUM_NODES", "2"},
                              {"SLURM_STEP_NUM_TASKS", "2"},
                              {"SLURM_STEP_NODELIST", "n[2-3]"},
                              {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                              {"SLURM_NODEID", "0"}};
    const Options three = options(with(daemons, open_mpi(3, 1)));
    CHECK(three.nodes == NodeRange{3, 3});
    CHECK(three.allocation->node == 1);
}

TEST_CASE("tasks of mpirun that would each train alone are refused", "[launcher]") {
    CHECK_THAT(refusal(open_mpi(2, 1), {"--nnodes", "1", "train"}),
               Contains("mpirun has started ddprun 2 times, and each would train alone"));
    CHECK_THAT(refusal(open_mpi(2, 2), {"--nnodes", "1", "train"}), Contains("each would train alone"));
    CHECK(refusal(open_mpi(2, 2), {"--standalone", "train"}) == "");
    CHECK(refusal(open_mpi(2, 1), {"--nnodes", "2", "--rdzv-endpoint", "n1", "train"}) == "");
    const Options named = options(open_mpi(2, 1), {"--rdzv-endpoint", "n1:29400", "train"});
    CHECK(named.nodes == NodeRange{2, 2});
    CHECK(named.rdzv_id == std::nullopt);
}

TEST_CASE("a range of nodes that meet in a home which they may not share is refused below a majority", "[launcher]") {
    CHECK(refusal(open_mpi(4, 1), {"--nnodes", "1:4", "train"}) ==
          "--nnodes 1:4: this mpirun names no hosts, so its 4 nodes meet in the home directory; if they do not share "
          "it, 1 of them could start a job without the others. Pass --rdzv-endpoint HOST:PORT to all nodes, or more "
          "than half of them as the minimum: --nnodes 3:4.");
    CHECK_THAT(refusal(open_mpi(4, 1), {"--nnodes", "2:4", "train"}), Contains("--nnodes 3:4."));
    CHECK_THAT(refusal(open_mpi(4, 1), {"--nnodes", "1:2", "train"}), Contains("--nnodes 3:3."));
    CHECK_THAT(refusal(open_mpi(5, 1), {"--nnodes", "2:8", "train"}), Contains("--nnodes 3:8."));
    CHECK(refusal(open_mpi(4, 1), {"--nnodes", "3:4", "train"}) == "");
    CHECK(refusal(open_mpi(5, 1), {"--nnodes", "3:5", "train"}) == "");
    CHECK(refusal(open_mpi(4, 1), {"--nnodes", "2", "--spare", "train"}) == "");
    CHECK(refusal(open_mpi(4, 1), {"--nnodes", "1:4", "--rdzv-endpoint", "n1:29400", "train"}) == "");
    CHECK(refusal(open_mpi(4, 1), {"--nnodes", "1:4", "--rdzv-dir", "/shared", "--rdzv-id", "x", "train"}) == "");
}

TEST_CASE("a ddprun that a worker of mpirun's starts is inside its job", "[launcher]") {
    const Environment agent = open_mpi(2, 1);
    CHECK_FALSE(options(with(agent, {{kSchedulerStepVariable, scheduler_step(agent)}})).allocation.has_value());
    const Environment own = with(agent, {{"PMIX_NAMESPACE", "7"}, {kSchedulerStepVariable, scheduler_step(agent)}});
    CHECK(options(own).nodes == NodeRange{2, 2});
}

TEST_CASE("a variable of mpirun that is missing or malformed is named, with what to do", "[launcher]") {
    const auto [change, part] = GENERATE(table<Environment, std::string>({
        {{{"OMPI_COMM_WORLD_SIZE", "0"}}, "OMPI_COMM_WORLD_SIZE=0: not a whole number from 1 to"},
        {{{"OMPI_COMM_WORLD_SIZE", "x"}}, "OMPI_COMM_WORLD_SIZE=x"},
        {{{"OMPI_COMM_WORLD_LOCAL_SIZE", ""}}, "OMPI_COMM_WORLD_SIZE is set, but OMPI_COMM_WORLD_LOCAL_SIZE is not"},
        {{{"OMPI_COMM_WORLD_LOCAL_SIZE", "-1"}}, "OMPI_COMM_WORLD_LOCAL_SIZE=-1"},
        {{{"OMPI_COMM_WORLD_RANK", "2"}}, "OMPI_COMM_WORLD_RANK=2: not a whole number from 0 to 1"},
        {{{"PMIX_NAMESPACE", ""}}, "PMIX_NAMESPACE is not"},
        {{{"OMPI_MCA_orte_hnp_uri", ""}}, "OMPI_MCA_orte_hnp_uri is not"},
    }));
    CHECK_THAT(refusal(with(open_mpi(2, 1), change)),
               Contains(part) && Contains("Name the nodes with --nnodes and --rdzv-endpoint"));
}

TEST_CASE("mpiexec of MPICH names the job when it is asked", "[launcher]") {
    FakeHydra hydra("cmd=my_kvsname kvsname=kvs_17364_0_1930142889_n1\n");
    const Options two = options(hydra.variables(2, 1));
    CHECK(hydra.request() == "cmd=get_my_kvsname\n");
    CHECK(two.nodes == NodeRange{2, 2});
    CHECK(two.allocation->name == "mpiexec-kvs_17364_0_1930142889_n1");
    CHECK(two.allocation->node == 1);
    CHECK(two.allocation->hosts.empty());
}

TEST_CASE("an mpiexec that does not name the job is refused", "[launcher]") {
    const auto* const answer = GENERATE("", "cmd=my_kvsname\n", "cmd=my_kvsname kvsname=\n", "x");
    const FakeHydra hydra(answer);
    CHECK_THAT(refusal(hydra.variables(2, 1)), Contains("mpiexec does not answer with the name of the job (PMI_FD=") &&
                                                   Contains("Name the nodes with --nnodes and --rdzv-endpoint"));
}

TEST_CASE("a variable of mpiexec that is missing or malformed is named, with what to do", "[launcher]") {
    const auto [change, part] = GENERATE(table<Environment, std::string>({
        {{{"PMI_SIZE", ""}}, "MPI_LOCALNRANKS is set, but PMI_SIZE is not"},
        {{{"PMI_SIZE", "x"}}, "PMI_SIZE=x"},
        {{{"MPI_LOCALNRANKS", "0"}}, "MPI_LOCALNRANKS=0"},
        {{{"PMI_RANK", "2"}}, "PMI_RANK=2"},
        {{{"PMI_FD", ""}}, "PMI_FD is not"},
        {{{"PMI_FD", "-1"}}, "PMI_FD=-1"},
    }));
    const FakeHydra hydra("cmd=my_kvsname kvsname=kvs_1\n");
    CHECK_THAT(refusal(with(hydra.variables(2, 1), change)),
               Contains(part) && Contains("Name the nodes with --nnodes and --rdzv-endpoint"));
}

TEST_CASE("processes of another starter of MPI programs are refused, and srun's are not", "[launcher]") {
    CHECK_THAT(refusal({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}), Contains("PMI_SIZE=2: ddprun was started 2 times"));
    CHECK_THAT(refusal({{"PMI_SIZE", "2"}}, {"--nnodes", "1", "train"}), Contains("each would train alone"));
    CHECK_THAT(refusal({{"PMIX_RANK", "1"}}), Contains("PMIX_RANK is set"));
    CHECK_THAT(refusal({{"PMI_SIZE", "x"}}), Contains("PMI_SIZE=x"));
    CHECK(refusal({{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}) == "");
    const Environment srun{{"SLURM_JOB_ID", "71"},
                           {"SLURM_JOB_NUM_NODES", "2"},
                           {"SLURM_STEP_ID", "0"},
                           {"SLURM_STEP_NUM_NODES", "2"},
                           {"SLURM_STEP_NUM_TASKS", "2"},
                           {"SLURM_STEP_NODELIST", "n[1-2]"},
                           {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                           {"SLURM_NODEID", "1"},
                           {"PMI_SIZE", "2"},
                           {"PMI_RANK", "1"},
                           {"PMI_FD", "9"},
                           {"PMIX_RANK", "1"}};  // of srun --mpi=pmi2 and --mpi=pmix
    CHECK(options(srun).rdzv_id == "slurm-71.0");
}

}  // namespace
}  // namespace ddprun::launcher
