// How many workers a node runs.

#include "launcher/host/slots.hpp"

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddprun::launcher;

TEST_CASE("GPUs are counted by device file and narrowed by CUDA_VISIBLE_DEVICES", "[launcher][unit]") {
    const TemporaryDirectory devices;
    CHECK(this_machine({}, devices.path()).gpus == 0);
    CHECK(this_machine({{"CUDA_VISIBLE_DEVICES", "0,1"}}, devices.path()).gpus == 0);
    for (const char* name : {"nvidia0", "nvidia1", "nvidia11", "nvidiactl", "nvidia-uvm", "nvidia"})
        devices.file(name, "", 0600);
    CHECK(this_machine({}, devices.path()).gpus == 3);
    CHECK(this_machine({{"CUDA_VISIBLE_DEVICES", ""}}, devices.path()).gpus == 0);
    CHECK(this_machine({{"CUDA_VISIBLE_DEVICES", "-1"}}, devices.path()).gpus == 0);
    CHECK(this_machine({{"CUDA_VISIBLE_DEVICES", "1"}}, devices.path()).gpus == 1);
    CHECK(this_machine({{"CUDA_VISIBLE_DEVICES", "0,11,-1,1"}}, devices.path()).gpus == 2);
    CHECK(this_machine({}, devices.path() / "no-such-folder").gpus == 0);
}

TEST_CASE("at least one CPU is allowed", "[launcher][unit]") { CHECK(this_machine({}).cpus >= 1); }

TEST_CASE("the number of workers is what was asked for or what there is", "[launcher][unit]") {
    const Machine with_gpus{.cpus = 8, .gpus = 2};
    const Machine without{.cpus = 8, .gpus = 0};
    CHECK(worker_count({Slots::Kind::kCount, 5}, without).value() == 5);
    CHECK(worker_count({Slots::Kind::kCpu, 0}, with_gpus).value() == 8);
    CHECK(worker_count({Slots::Kind::kGpu, 0}, with_gpus).value() == 2);
    CHECK(worker_count({Slots::Kind::kAuto, 0}, with_gpus).value() == 2);
    CHECK(worker_count({Slots::Kind::kAuto, 0}, without).value() == 8);
    const auto refused = worker_count({Slots::Kind::kGpu, 0}, without);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == ddprun::Errc::kUsage);
    CHECK_THAT(refused.error().message, Catch::StartsWith("--nproc-per-node gpu: this machine has no GPU to use"));
}

TEST_CASE("with virtual local ranks each worker needs a GPU of the list, if there is one", "[launcher][unit]") {
    Options options;
    const Environment two{{"CUDA_VISIBLE_DEVICES", "4,7"}};
    CHECK(check_gpus(options, 3, two).has_value());
    options.virtual_local_rank = true;
    CHECK(check_gpus(options, 2, two).has_value());
    CHECK(check_gpus(options, 3, {}).has_value());
    CHECK(check_gpus(options, 3, {{"CUDA_VISIBLE_DEVICES", ""}}).has_value());
    const auto refused = check_gpus(options, 3, two);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == ddprun::Errc::kUsage);
    CHECK(refused.error().message ==
          "--virtual-local-rank: CUDA_VISIBLE_DEVICES=4,7 names 2 GPUs for the 3 workers of this node. Name one "
          "for each of them, or pass --nproc-per-node 2.");
}
