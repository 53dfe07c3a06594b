// How many workers a node runs, and which device each of them sees.

#include "launcher/host/slots.hpp"

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddprun::launcher;

TEST_CASE("a machine's GPUs are NVIDIA's, or AMD's where there is none of NVIDIA's", "[launcher][unit]") {
    const TemporaryDirectory root;
    CHECK(this_machine({}, root.path()).cpus >= 1);
    CHECK(this_machine({}, root.path()).gpus == 0);
    CHECK(this_machine({}, root.path() / "no-such-folder").gpus == 0);
    root.file("dev/kfd", "", 0600);
    root.file("sys/class/kfd/kfd/topology/nodes/1/properties", "simd_count 8\n", 0600);
    CHECK(this_machine({}, root.path()).gpus == 1);
    CHECK(this_machine({}, root.path()).gpus_are_amd);
    for (const char* name : {"dev/nvidia0", "dev/nvidia1"}) root.file(name, "", 0600);
    CHECK(this_machine({}, root.path()).gpus == 2);
    CHECK_FALSE(this_machine({}, root.path()).gpus_are_amd);
}

TEST_CASE("the number of workers is what was asked for or what there is", "[launcher][unit]") {
    const Machine with_gpus{.cpus = 8, .gpus = 2, .xpus = 3};
    const Machine without{.cpus = 8};
    const Machine with_xpus{.cpus = 8, .xpus = 3};
    CHECK(worker_count({Slots::Kind::kCount, 5}, without).value() == 5);
    CHECK(worker_count({Slots::Kind::kCpu, 0}, with_gpus).value() == 8);
    CHECK(worker_count({Slots::Kind::kGpu, 0}, with_gpus).value() == 2);
    CHECK(worker_count({Slots::Kind::kXpu, 0}, with_gpus).value() == 3);
    CHECK(worker_count({Slots::Kind::kAuto, 0}, with_gpus).value() == 2);
    CHECK(worker_count({Slots::Kind::kAuto, 0}, with_xpus).value() == 8);
    CHECK(worker_count({Slots::Kind::kAuto, 0}, without).value() == 8);
    const auto no_gpu = worker_count({Slots::Kind::kGpu, 0}, with_xpus);
    REQUIRE_FALSE(no_gpu.has_value());
    CHECK(no_gpu.error().code == ddprun::Errc::kUsage);
    CHECK_THAT(no_gpu.error().message,
               Catch::StartsWith("--nproc-per-node gpu: this machine has no GPU to use (no /dev/nvidia<number>") &&
                   Catch::Contains("/dev/kfd") && Catch::EndsWith("Write a number, cpu or auto."));
    const auto no_xpu = worker_count({Slots::Kind::kXpu, 0}, without);
    REQUIRE_FALSE(no_xpu.has_value());
    CHECK_THAT(no_xpu.error().message,
               Catch::StartsWith("--nproc-per-node xpu: this machine has no Intel GPU to use (no /sys/class/drm/"));
}

TEST_CASE("virtual local ranks narrow the lists that are set, and AMD's on a machine of theirs", "[launcher][unit]") {
    using Names = std::vector<std::string>;
    Options options;
    const Environment all{{"HIP_VISIBLE_DEVICES", "0"}, {"ZE_AFFINITY_MASK", "0"}};
    CHECK(device_variables(options, {}, all).empty());
    options.virtual_local_rank = true;
    CHECK(device_variables(options, {}, {}) == Names{"CUDA_VISIBLE_DEVICES"});
    CHECK(device_variables(options, {}, all) ==
          Names{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"});
    CHECK(device_variables(options, {.gpus = 2, .gpus_are_amd = true}, {}) ==
          Names{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"});
}

TEST_CASE("with virtual local ranks each worker needs a device of the list, if there is one", "[launcher][unit]") {
    const std::vector<std::string> names{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"};
    CHECK(check_visible_devices({}, 3, {{"CUDA_VISIBLE_DEVICES", "4,7"}}).has_value());
    CHECK(check_visible_devices(names, 2, {{"CUDA_VISIBLE_DEVICES", "4,7"}}).has_value());
    CHECK(check_visible_devices(names, 3, {}).has_value());
    CHECK(check_visible_devices(names, 3, {{"CUDA_VISIBLE_DEVICES", ""}}).has_value());
    CHECK_FALSE(check_visible_devices(names, 3, {{"HIP_VISIBLE_DEVICES", "4,7"}}).has_value());
    const auto refused = check_visible_devices(names, 3, {{"CUDA_VISIBLE_DEVICES", "4,7"}});
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == ddprun::Errc::kUsage);
    CHECK(refused.error().message ==
          "--virtual-local-rank: CUDA_VISIBLE_DEVICES=4,7 names 2 GPUs for the 3 workers of this node. Name one "
          "for each of them, or start 2 workers (--nproc-per-node).");
}
