// LSF and PBS, whose jobs start one program on the first of their hosts.
#include <fstream>

#include "launcher/scheduler/lsf.hpp"
#include "launcher/scheduler/pbs.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/launcher/scheduler/parsed.hpp"

namespace ddprun::launcher {
namespace {

using Catch::Contains;

/// The variables of an LSF job on the hosts of `hosts`.
Environment lsf_job(const std::string& hosts) {
    return {{"LSB_JOBID", "71"}, {"LSB_JOBINDEX", "0"}, {"LSB_MCPU_HOSTS", hosts}};
}

/// A PBS job script on hosts whose names are the lines of its node file.
struct PbsJob {
    explicit PbsJob(const std::string& lines) { std::ofstream(directory.path() / "nodes") << lines; }
    [[nodiscard]] Environment script() const {
        return {{"PBS_JOBID", "71.server"},
                {"PBS_NODEFILE", (directory.path() / "nodes").string()},
                {"PBS_TASKNUM", "1"},
                {"PBS_NODENUM", "0"}};
    }
    TemporaryDirectory directory;
};

TEST_CASE("a job of LSF or PBS on one host runs a job of one node", "[launcher]") {
    const Options lsf = options(lsf_job("n1 4"));
    CHECK(lsf.nodes == NodeRange{1, 1});
    CHECK(lsf.rdzv_id == "lsf-71");
    CHECK(options(with(lsf_job("n1 4"), {{"LSB_JOBINDEX", "3"}})).rdzv_id == "lsf-71-3");
    const PbsJob job("n1\nn1\n");
    const Options pbs = options(job.script());
    CHECK(pbs.nodes == NodeRange{1, 1});
    CHECK(pbs.rdzv_id == "pbs-71.server");
}

TEST_CASE("processes of another starter in a batch job of one host are refused", "[launcher]") {
    const PbsJob pbs("n1\nn1\n");
    const Environment slurm{
        {"SLURM_JOB_ID", "71"}, {"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_JOB_NODELIST", "n1"}, {"SLURMD_NODENAME", "n1"}};
    for (const Environment& job : {lsf_job("n1 4"), pbs.script(), slurm}) {
        CAPTURE(job.begin()->first);
        CHECK_THAT(refusal(with(job, {{"PMI_SIZE", "4"}, {"PMI_RANK", "1"}})),
                   Contains("PMI_SIZE=4: ddprun was started 4 times"));
        CHECK_THAT(refusal(with(job, {{"PMIX_RANK", "1"}})), Contains("PMIX_RANK is set"));
        CHECK(options(with(job, {{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}})).allocation.has_value());
    }
}

TEST_CASE("ddprun that a job of LSF or PBS on several hosts has started once is refused with the line to use",
          "[launcher]") {
    const PbsJob job("n1\nn1\nn2\n");
    CHECK(refusal(job.script()) ==
          "ddprun was started once, but PBS job 71.server has 2 hosts, and each of them needs its own ddprun. Start it "
          "with ddprun --hosts \"$PBS_NODEFILE\" …, which uses ssh, or with mpirun -np 2 --map-by ppr:1:node --bind-to "
          "none ddprun …; or pass --standalone to use one host alone.");
    CHECK_THAT(refusal(lsf_job("n1 4 n2 4 n3 4")),
               Contains("LSF job 71 has 3 hosts") && Contains("ddprun --hosts \"$LSB_DJOB_HOSTFILE\" …"));
    CHECK(options(job.script(), {"--hosts", "n1,n2", "train"}).nodes == NodeRange{2, 2});
    CHECK(refusal(job.script(), {"--standalone", "train"}) == "");
    CHECK(refusal(job.script(), {"--nnodes", "2", "--rdzv-endpoint", "n1", "train"}) == "");
    CHECK(lsf_job_nodes(lsf_job("n1 4 n2 4")) == 2);
    CHECK(pbs_job_nodes(job.script()) == 2);
    CHECK(lsf_job_nodes({}) == 0);
    CHECK(pbs_job_nodes({}) == 0);
}

TEST_CASE("ddprun that pbsdsh or blaunch may have started once per slot of a host is refused", "[launcher]") {
    const PbsJob job("n1\nn1\n");
    CHECK_THAT(refusal(with(job.script(), {{"PBS_TASKNUM", "3"}})),
               Contains("pbsdsh has started ddprun") && Contains("--nproc-per-node 2"));
    CHECK_THAT(refusal(with(lsf_job("n1 4"), {{"LSF_PM_TASKID", "2"}})),
               Contains("blaunch has started ddprun") && Contains("--nproc-per-node 4"));
    CHECK(refusal(with(lsf_job("n1 1"), {{"LSF_PM_TASKID", "1"}})) == "");
}

TEST_CASE("a variable of LSF or PBS that is missing or malformed is named, with what to do", "[launcher]") {
    const auto [environment, part] = GENERATE(table<Environment, std::string>({
        {{{"LSB_JOBID", "71"}}, "LSB_JOBID is set, but LSB_MCPU_HOSTS is not"},
        {lsf_job("n1"), "LSB_MCPU_HOSTS=n1: not a list of hosts with their slots"},
        {lsf_job("n1 x"), "LSB_MCPU_HOSTS=n1 x"},
        {lsf_job("n1 0"), "LSB_MCPU_HOSTS=n1 0"},
        {lsf_job(" "), "LSB_MCPU_HOSTS names no host"},
        {{{"PBS_JOBID", "71"}}, "PBS_JOBID is set, but PBS_NODEFILE is not"},
        {{{"PBS_JOBID", "71"}, {"PBS_NODEFILE", "/nowhere"}},
         "PBS_NODEFILE=/nowhere: names no host, or cannot be read on this one, so the hosts of PBS job 71 are unknown"},
        {{{"PBS_JOBID", "71"}, {"PBS_NODEFILE", "/dev/null"}}, "PBS_NODEFILE=/dev/null: names no host"},
    }));
    CHECK_THAT(refusal(environment), Contains(part) && Contains("Name the nodes with --nnodes and --rdzv-endpoint"));
    const PbsJob job("n1\n");
    CHECK_THAT(refusal(with(job.script(), {{"PBS_TASKNUM", "x"}})), Contains("PBS_TASKNUM=x"));
}

}  // namespace
}  // namespace ddprun::launcher
