// The variables are those of SLURM 22.05, printed by tasks of srun, by a batch script and by the shell of salloc.
#include "launcher/scheduler/slurm.hpp"

#include <algorithm>
#include <set>

#include "common/scheduler_step.hpp"
#include "tests/catch.hpp"
#include "tests/unit/launcher/scheduler/parsed.hpp"

namespace ddprun::launcher {
namespace {

using Catch::Contains;

/// The variables of a task that `srun -N2 ddprun` has started on the second of two nodes.
Environment second_of_two() {
    return {{"SLURM_JOB_ID", "71"},
            {"SLURM_JOB_NUM_NODES", "2"},
            {"SLURM_JOB_NODELIST", "n[1-2]"},
            {"SLURMD_NODENAME", "n2"},
            {"SLURM_STEP_ID", "0"},
            {"SLURM_STEP_NUM_NODES", "2"},
            {"SLURM_STEP_NUM_TASKS", "2"},
            {"SLURM_STEP_NODELIST", "n[1-2]"},
            {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
            {"SLURM_NODEID", "1"},
            {"SLURM_PROCID", "1"},
            {"SLURM_LOCALID", "0"},
            {"SLURM_CPUS_ON_NODE", "4"}};
}

/// The variables of the batch script of a job of `nodes` nodes.
Environment batch_script(int nodes) {
    return {{"SLURM_JOB_ID", "71"},
            {"SLURM_JOB_NUM_NODES", std::to_string(nodes)},
            {"SLURM_JOB_NODELIST", nodes == 1 ? "n1" : "n[1-" + std::to_string(nodes) + "]"},
            {"SLURMD_NODENAME", "n1"},
            {"SLURM_NODEID", "0"},
            {"SLURM_PROCID", "0"},
            {"SLURM_LOCALID", "0"}};
}

TEST_CASE("a task of srun is one node of its step", "[launcher]") {
    const auto found = find_slurm(second_of_two());
    REQUIRE(found.has_value());
    REQUIRE(found->has_value());
    CHECK((*found)->name == "slurm-71.0");
    CHECK((*found)->title == "step 0 of SLURM job 71");
    CHECK((*found)->hosts == std::vector<std::string>{"n1", "n2"});
    CHECK((*found)->node == 1);
    CHECK((*found)->job_nodes == 2);
    CHECK((*found)->cpus == 4);
    CHECK((*found)->gpus == std::nullopt);
    CHECK_FALSE(find_slurm({})->has_value());
    // Of `#SBATCH --ntasks-per-node=2 --cpus-per-task=2`: the step of one task per node has the CPUs of both.
    CHECK((*find_slurm(with(second_of_two(), {{"SLURM_CPUS_PER_TASK", "2"}})))->cpus == 4);
}

TEST_CASE("each attempt of a job that is requeued has a name of its own", "[launcher]") {
    CHECK((*find_slurm(with(second_of_two(), {{"SLURM_RESTART_COUNT", "3"}})))->name == "slurm-71.0-r3");
    CHECK((*find_slurm(with(batch_script(1), {{"SLURM_RESTART_COUNT", "1"}})))->name == "slurm-71-r1");
}

TEST_CASE("srun needs no option: nodes, workers and run id are those of the step", "[launcher]") {
    const Options two = options(second_of_two());
    CHECK(two.nodes == NodeRange{2, 2});
    CHECK(two.rdzv_id == "slurm-71.0");
    CHECK(two.node_rank == std::nullopt);  // else MASTER_ADDR would be the first host
    CHECK(two.programs.front().slots == Slots{Slots::Kind::kCount, 1});
    const Options gpus = options(with(second_of_two(), {{"SLURM_GPUS_ON_NODE", "8"}}));
    CHECK(gpus.programs.front().slots == Slots{Slots::Kind::kCount, 8});
    const Options fewer = options(with(second_of_two(), {{"SLURM_GPUS_ON_NODE", "8"}}), {"--nproc-per-node", "2", "t"});
    CHECK(fewer.programs.front().slots == Slots{Slots::Kind::kCount, 2});
    CHECK(options(with(second_of_two(), {{"PET_NPROC_PER_NODE", "3"}, {"SLURM_GPUS_ON_NODE", "8"}}))
              .programs.front()
              .slots == Slots{Slots::Kind::kCount, 3});
}

TEST_CASE("a batch script of one node runs a job of one node", "[launcher]") {
    const Options one = options(batch_script(1));
    CHECK(one.nodes == NodeRange{1, 1});
    CHECK(one.rdzv_id == "slurm-71");
}

TEST_CASE("a heterogeneous step has the nodes of all components", "[launcher]") {
    Environment het = with(second_of_two(), {{"SLURM_HET_SIZE", "2"},
                                             {"SLURM_JOB_NUM_NODES_HET_GROUP_0", "1"},
                                             {"SLURM_JOB_NUM_NODES_HET_GROUP_1", "2"},
                                             {"SLURM_JOB_NUM_NODES", "3"},
                                             {"SLURM_STEP_NUM_NODES", "3"},
                                             {"SLURM_STEP_NODELIST", "n[1-3]"},
                                             {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"}});
    CHECK(options(het).nodes == NodeRange{3, 3});
    Environment script = with(
        batch_script(1),
        {{"SLURM_HET_SIZE", "2"}, {"SLURM_JOB_NUM_NODES_HET_GROUP_0", "1"}, {"SLURM_JOB_NUM_NODES_HET_GROUP_1", "2"}});
    CHECK_THAT(refusal(script), Contains("SLURM job 71 has 3 nodes") &&
                                    Contains("Start it with srun --het-group=0 --nodes=1 --ntasks=1 ddprun … : "
                                             "--het-group=1 --nodes=2 --ntasks=2 ddprun …; or"));
}

TEST_CASE("a world smaller than the allocation is refused with the line to use", "[launcher]") {
    CHECK(refusal(batch_script(2)) ==
          "ddprun was started once, but SLURM job 71 has 2 nodes, and each of them needs its own ddprun. Start it with "
          "srun --nodes=2 --ntasks=2 ddprun …; or pass --standalone to use one node alone.");
    CHECK_THAT(refusal(with(second_of_two(), {{"SLURM_STEP_TASKS_PER_NODE", "1,4(x1)"}})),
               Contains("srun has started 4 tasks on a node") &&
                   Contains("Start it with srun --nodes=2 --ntasks=2 ddprun …, with --nproc-per-node 4 for as many"));
    const Environment part = with(second_of_two(), {{"SLURM_JOB_NUM_NODES", "3"}});
    CHECK_THAT(refusal(part), Contains("step 0 of SLURM job 71 has 2 of the 3 nodes") && Contains("Pass --nnodes 2 "));
    CHECK(refusal(part, {"--nnodes", "2", "train"}) == "");
    CHECK_THAT(refusal(second_of_two(), {"--nnodes", "3", "train"}),
               Contains("--nnodes 3: step 0 of SLURM job 71 has 2 nodes"));
    const Environment three =
        with(second_of_two(),
             {{"SLURM_JOB_NUM_NODES", "3"}, {"SLURM_STEP_NUM_NODES", "3"}, {"SLURM_STEP_NODELIST", "n[1-3]"}});
    CHECK_THAT(refusal(three, {"--nnodes", "2", "train"}), Contains("has 3 nodes") && Contains("--spare"));
    CHECK(refusal(three, {"--nnodes", "2", "--spare", "train"}) == "");
    CHECK(refusal(three, {"--nnodes", "1:2", "train"}) == "");  // the third waits as a spare
    Environment elsewhere = batch_script(1);
    elsewhere.erase("SLURMD_NODENAME");
    CHECK_THAT(refusal(elsewhere), Contains("this shell is not on n1") && Contains("srun --nodes=1 --ntasks=1"));
    // An interactive step (srun --pty in salloc) and the batch step have numbers of their own.
    for (const char* id : {"4294967290", "4294967291"}) {
        const Environment shell = with(batch_script(2), {{"SLURM_STEP_ID", id}});
        CHECK_THAT(refusal(shell), Contains("ddprun was started once"));
    }
}

TEST_CASE("options that name the nodes leave the scheduler out", "[launcher]") {
    const auto arguments = GENERATE(values<std::vector<std::string>>({
        {"--standalone", "train"},
        {"--nnodes", "2", "--local-nodes", "train"},
        {"--nnodes", "1", "train"},
        {"--nnodes", "2", "--rdzv-endpoint", "n1:29400", "train"},
        {"--nnodes", "2", "--master-addr", "n1", "--node-rank", "0", "train"},
        {"--nnodes", "2", "--rdzv-dir", "/shared", "--rdzv-id", "x", "train"},
    }));
    const Options parsed = options(batch_script(2), arguments);
    CHECK_FALSE(parsed.allocation.has_value());
    CHECK(parsed.rdzv_id.value_or("x") == "x");
}

TEST_CASE("tasks of one step that would each train alone are refused", "[launcher]") {
    const auto arguments = GENERATE(values<std::vector<std::string>>({
        {"--nnodes", "1", "train"},
        {"--nnodes", "1", "--spare", "train"},
        {"--nnodes", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "train"},
        {"--nnodes", "1:2", "--rdzv-endpoint", "localhost:29400", "train"},
        {"--nnodes", "1:2", "--master-port", "29500", "train"},
    }));
    CHECK_THAT(refusal(second_of_two(), arguments),
               Contains("srun has started ddprun 2 times, and each would train alone") &&
                   Contains("leave out --nnodes and the endpoint") && Contains("--standalone"));
    CHECK_THAT(refusal(with(second_of_two(), {{"PET_NNODES", "1"}})), Contains("each would train alone"));
    CHECK(refusal(second_of_two(), {"--standalone", "train"}) == "");
    const Environment one = with(second_of_two(), {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}});
    CHECK(refusal(one, arguments) == "");
}

TEST_CASE("tasks of one step may share the endpoint that the user names", "[launcher]") {
    const auto arguments = GENERATE(values<std::vector<std::string>>({
        {"--nnodes", "1:2", "--rdzv-endpoint", "n1:29400", "train"},
        {"--nnodes", "1", "--spare", "--rdzv-endpoint", "n1:29400", "train"},
        {"--nnodes", "1:2", "--rdzv-dir", "/shared", "--rdzv-id", "x", "train"},
    }));
    CHECK(refusal(second_of_two(), arguments) == "");
    const Environment one_host = with(second_of_two(), {{"SLURM_STEP_NUM_NODES", "1"}});
    CHECK(refusal(one_host, {"--nnodes", "1:2", "--rdzv-endpoint", "localhost:29400", "train"}) == "");
}

TEST_CASE("a worker's own ddprun is inside the job that has the allocation, a job that a worker submits is not",
          "[launcher]") {
    const auto worker_of = [](const Environment& agent) {
        return with(agent, {{kSchedulerStepVariable, scheduler_step(agent)}});
    };
    CHECK_FALSE(options(worker_of(second_of_two())).allocation.has_value());
    CHECK_FALSE(options(worker_of(batch_script(2))).allocation.has_value());
    CHECK(options(with(worker_of(second_of_two()), {{"SLURM_JOB_ID", "72"}})).nodes == NodeRange{2, 2});
    CHECK(options(with(worker_of(batch_script(1)), second_of_two())).nodes == NodeRange{2, 2});  // by its own srun
    CHECK(options(with(second_of_two(), {{"DDPRUN_SESSION", "0f"}})).nodes ==
          NodeRange{2, 2});  // by a worker elsewhere
}

TEST_CASE("an endpoint of the user's keeps its meaning, and the allocation says how many nodes there are",
          "[launcher]") {
    const Options named = options(second_of_two(), {"--rdzv-endpoint", "n9:29400", "train"});
    CHECK(named.nodes == NodeRange{2, 2});
    CHECK(named.rdzv_id == std::nullopt);
    const Options directory = options(second_of_two(), {"--rdzv-dir", "/shared", "train"});
    CHECK(directory.rdzv_id == "slurm-71.0");
}

TEST_CASE("a variable that is missing or malformed is named, with what to do", "[launcher]") {
    const auto [change, part] = GENERATE(table<Environment, std::string>({
        {{{"SLURM_STEP_NODELIST", ""}}, "SLURM_JOB_ID is set, but SLURM_STEP_NODELIST is not"},
        {{{"SLURM_STEP_NODELIST", "n[1-"}}, "SLURM_STEP_NODELIST: 'n[1-' is not a list of hosts"},
        {{{"SLURM_STEP_NODELIST", "n1"}, {"SLURM_NODEID", "0"}}, "has 1 host, but SLURM_STEP_NUM_NODES is 2"},
        {{{"SLURM_NODEID", "2"}}, "SLURM_NODEID=2: not a whole number from 0 to 1"},
        {{{"SLURM_NODEID", ""}}, "SLURM_NODEID is not"},
        {{{"SLURM_STEP_TASKS_PER_NODE", "x"}}, "SLURM_STEP_TASKS_PER_NODE=x: not a list of counts"},
        {{{"SLURM_STEP_TASKS_PER_NODE", ""}}, "SLURM_STEP_TASKS_PER_NODE is not"},
        {{{"SLURM_JOB_ID", "../x"}}, "SLURM_JOB_ID=../x: not the number of a job"},
        {{{"SLURM_GPUS_ON_NODE", "-1"}}, "SLURM_GPUS_ON_NODE=-1"},
        {{{"SLURM_RESTART_COUNT", "x"}}, "SLURM_RESTART_COUNT=x"},
        {{{"SLURM_HET_SIZE", "x"}}, "SLURM_HET_SIZE=x"},
    }));
    const std::string message = refusal(with(second_of_two(), change));
    CHECK_THAT(message, Contains(part) && Contains("Name the nodes with --nnodes and --rdzv-endpoint"));
}

TEST_CASE("the ports of a step are distinct, below those of outgoing connections, and differ between steps",
          "[launcher]") {
    std::set<std::uint16_t> first;
    for (int job = 1; job <= 1000; ++job) {
        const auto ports = ports_of_step("slurm-" + std::to_string(job) + ".0");
        REQUIRE(std::set<std::uint16_t>(ports.begin(), ports.end()).size() == 8);
        CHECK(std::ranges::min(ports) >= 20'000);
        CHECK(std::ranges::max(ports) < 32'768);
        first.insert(ports.front());
    }
    CHECK(first.size() > 900);
    CHECK(ports_of_step("slurm-71.0") == ports_of_step("slurm-71.0"));
}

}  // namespace
}  // namespace ddprun::launcher

TEST_CASE("the end of the job is a time in seconds, if SLURM gives one", "[launcher][unit]") {
    CHECK(ddprun::launcher::slurm_job_end({}).value() == std::nullopt);
    CHECK(ddprun::launcher::slurm_job_end({{"SLURM_JOB_END_TIME", ""}}).value() == std::nullopt);
    CHECK(ddprun::launcher::slurm_job_end({{"SLURM_JOB_END_TIME", "1790000000"}}).value() ==
          std::chrono::system_clock::time_point(std::chrono::seconds(1'790'000'000)));
    for (const char* const bad : {"noon", "-1", "1790000000.5", "99999999999999"}) {
        const auto refused = ddprun::launcher::slurm_job_end({{"SLURM_JOB_END_TIME", bad}});
        REQUIRE(refused.has_error());
        CHECK_THAT(refused.error().message, Catch::Contains("not a time in seconds since 1970"));
    }
}
