// The text about workers that are not bound near their GPUs.

#include "launcher/worker_resources.hpp"

#include "tests/catch.hpp"
#include "tests/unit/launcher/binding/synthetic.hpp"

using namespace ddprun;
using namespace ddprun::launcher;

namespace {

const char* const kTwoNodes = "numa:2 core:2 pu:1";  // CPUs 0-1 and 2-3

WorkerGpus gpus_near(std::vector<CpuSet> near) {
    std::vector<std::string> names{"4", "5", "6"};
    names.resize(near.size());
    return {std::move(names), std::move(near), "Set X."};
}

}  // namespace

TEST_CASE("workers near their GPUs, or without one, need no warning", "[launcher][unit]") {
    CHECK(far_workers_text(gpus_near({cpus(0, 1), cpus(2, 3)}), synthetic(kTwoNodes)).empty());
    CHECK(far_workers_text({{}, std::vector<CpuSet>(2), "Set X."}, synthetic(kTwoNodes)).empty());
}

TEST_CASE("a GPU whose location is not known is named, where it matters", "[launcher][unit]") {
    CHECK(far_workers_text(gpus_near({cpus(0, 1), {}, {}}), synthetic(kTwoNodes)) ==
          "--numa-binding: the location of GPUs 5 and 6 (local ranks 1-2) is not known, so any NUMA node may be "
          "chosen. Set X.");
    CHECK(far_workers_text(gpus_near({{}}), synthetic("numa:1 core:2 pu:1")).empty());
}

TEST_CASE("a GPU without an allowed CPU nearby is named", "[launcher][unit]") {
    const Topology second = restricted_to(cpus(2, 3), synthetic(kTwoNodes));
    CHECK(far_workers_text(gpus_near({cpus(0, 1), cpus(2, 3)}), second) ==
          "--numa-binding: ddprun may not run on any CPU near GPU 4 (local rank 0), only on 2-3. Allow CPUs near it "
          "(taskset, the scheduler's options), or choose other GPUs (--gpus).");
}
