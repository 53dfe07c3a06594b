// The variables are those of flux-environment(7).
#include "launcher/scheduler/flux.hpp"

#include "common/scheduler_step.hpp"
#include "tests/catch.hpp"
#include "tests/unit/launcher/scheduler/parsed.hpp"

namespace ddprun::launcher {
namespace {

using Catch::Contains;

/// The variables of the second of two tasks of `flux run -N2 -n2`.
Environment second_flux_task() {
    return {{"FLUX_URI", "local:///run/flux/local"},
            {"FLUX_JOB_ID", "ƒDCB6RV"},
            {"FLUX_ENCLOSING_ID", "ƒD2e73NP"},
            {"FLUX_JOB_ID_PATH", "/ƒD2e73NP/ƒDCB6RV"},
            {"FLUX_JOB_SIZE", "2"},
            {"FLUX_JOB_NNODES", "2"},
            {"FLUX_TASK_RANK", "1"},
            {"FLUX_TASK_LOCAL_ID", "0"},
            {"PMI_SIZE", "2"},
            {"PMI_RANK", "1"},
            {"PMI_FD", "9"}};
}

TEST_CASE("flux run with one ddprun per node needs no option", "[launcher]") {
    const Options two = options(second_flux_task());
    CHECK(two.nodes == NodeRange{2, 2});
    CHECK(two.rdzv_id == "flux-fD2e73NP-fDCB6RV");
    CHECK(two.allocation->node == 1);
    CHECK(two.allocation->hosts.empty());
    CHECK(options(with(second_flux_task(), {{"FLUX_JOB_ID_PATH", ""}})).rdzv_id == two.rdzv_id);
    CHECK(options(with(second_flux_task(), {{"FLUX_JOB_ID_PATH", ""}, {"FLUX_ENCLOSING_ID", ""}})).rdzv_id ==
          "flux-fDCB6RV");
    const Environment one =
        with(second_flux_task(), {{"FLUX_JOB_SIZE", "1"}, {"FLUX_JOB_NNODES", "1"}, {"FLUX_TASK_RANK", "0"}});
    CHECK(options(one).nodes == NodeRange{1, 1});
}

TEST_CASE("a start of Flux that would become a smaller world is refused with the line to use", "[launcher]") {
    const Environment four = with(second_flux_task(), {{"FLUX_JOB_SIZE", "4"}});
    CHECK_THAT(refusal(four), Contains("flux has started 2 tasks on a node") &&
                                  Contains("Start it with flux run --nodes=2 --ntasks=2 --exclusive ddprun"));
    CHECK_THAT(refusal({{"FLUX_URI", "local:///run/flux/local"}, {"FLUX_ENCLOSING_ID", "ƒD2e73NP"}}),
               Contains("FLUX_URI is set, but FLUX_JOB_ID is not") &&
                   Contains("Start it with flux run --nodes=N --ntasks=N") && Contains("--standalone"));
    CHECK_THAT(refusal(second_flux_task(), {"--nnodes", "1", "train"}),
               Contains("flux has started ddprun 2 times, and each would train alone"));
    CHECK(refusal({{"FLUX_URI", "local:///run/flux/local"}}, {"--nnodes", "1", "train"}) == "");
}

TEST_CASE("flux run on fewer nodes than the batch job around it is refused", "[launcher]") {
    const Environment job{{"SLURM_JOB_ID", "71"}, {"SLURM_JOB_NUM_NODES", "4"}};
    const Environment half = with(job, second_flux_task());
    CHECK(refusal(half) ==
          "Flux job ƒDCB6RV has 2 of the 4 nodes of the job. Pass --nnodes 2 if that is intended; to use all, start "
          "ddprun with flux run --nodes=4 --ntasks=4 --exclusive ddprun ….");
    CHECK(options(half, {"--nnodes", "2", "train"}).nodes == NodeRange{2, 2});
    CHECK(options(with(half, {{"SLURM_JOB_NUM_NODES", "2"}})).nodes == NodeRange{2, 2});
}

TEST_CASE("a ddprun that a worker of a Flux job starts is inside that job", "[launcher]") {
    const Environment agent = second_flux_task();
    CHECK_FALSE(options(with(agent, {{kSchedulerStepVariable, scheduler_step(agent)}})).allocation.has_value());
}

TEST_CASE("a variable of Flux that is missing or malformed is named, with what to do", "[launcher]") {
    const auto [change, part] = GENERATE(table<Environment, std::string>({
        {{{"FLUX_JOB_SIZE", ""}}, "FLUX_JOB_ID is set, but FLUX_JOB_SIZE is not"},
        {{{"FLUX_JOB_SIZE", "x"}}, "FLUX_JOB_SIZE=x"},
        {{{"FLUX_JOB_NNODES", "0"}}, "FLUX_JOB_NNODES=0"},
        {{{"FLUX_TASK_RANK", "2"}}, "FLUX_TASK_RANK=2: not a whole number from 0 to 1"},
    }));
    CHECK_THAT(refusal(with(second_flux_task(), change)),
               Contains(part) && Contains("Name the nodes with --nnodes and --rdzv-endpoint"));
}

}  // namespace
}  // namespace ddprun::launcher
