// The GPUs of a machine and the choice of --gpus, by a tree of files like that of the kernel.

#include "launcher/host/gpus.hpp"

#include "launcher/host/slots.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddprun;
using namespace ddprun::launcher;

namespace {

/// A tree with /dev, /proc and /sys of a machine with GPUs.
struct GpuTree {
    TemporaryDirectory root;

    void pci(const std::string& address, const std::string& cpus) const {
        root.file("sys/bus/pci/devices/" + address + "/local_cpulist", cpus + "\n", 0600);
    }
    void nvidia(const std::string& address, int minor, const std::string& uuid, const std::string& cpus,
                const std::string& model = "NVIDIA H100") const {
        root.file(
            "proc/driver/nvidia/gpus/" + address + "/information",
            "Model: \t\t " + model + "\nGPU UUID: \t " + uuid + "\nDevice Minor: \t " + std::to_string(minor) + "\n",
            0600);
        root.file("dev/nvidia" + std::to_string(minor), "", 0600);
        pci(address, cpus);
    }
    /// Two GPUs on each of two NUMA nodes; the device files are numbered in another order.
    void four() const {
        nvidia("0000:1b:00.0", 1, "GPU-1b", "0-7");
        nvidia("0000:2b:00.0", 0, "GPU-2b", "0-7");
        nvidia("0000:9b:00.0", 2, "GPU-9b", "8-15");
        nvidia("0000:ab:00.0", 3, "GPU-ab", "8-15");
    }
    void kfd(int number, const std::string& properties) const {
        root.file("dev/kfd", "", 0600);
        root.file("sys/class/kfd/kfd/topology/nodes/" + std::to_string(number) + "/properties", properties, 0600);
    }
    void intel(const std::string& name, const std::string& address, const std::string& cpus) const {
        pci(address, cpus);
        root.file("sys/bus/pci/devices/" + address + "/vendor", "0x8086\n", 0600);
        const auto device = root.path() / "sys/bus/pci/devices" / address;
        std::filesystem::create_symlink("../drivers/xe", device / "driver");
        std::filesystem::create_directories(root.path() / "sys/class/drm" / name);
        std::filesystem::create_directory_symlink(device, root.path() / "sys/class/drm" / name / "device");
    }
    [[nodiscard]] WorkerGpus of(int workers, const Environment& environment = {}, const Options& options = {}) const {
        return gpus_of_workers(options, workers, environment, root.path()).value();
    }
};

using Names = std::vector<std::string>;
using Sets = std::vector<CpuSet>;

const CpuSet kLow{0, 1, 2, 3, 4, 5, 6, 7};
const CpuSet kHigh{8, 9, 10, 11, 12, 13, 14, 15};

std::string chosen(const Names& wanted, const GpuInventory& inventory,
                   const std::optional<VisibleList>& inherited = {}) {
    const auto list = choose_gpus(wanted, inventory, inherited);
    return list ? *list : "refused: " + list.error().message;
}

std::string chosen(const Names& wanted, const std::optional<VisibleList>& inherited = {}) {
    const GpuInventory four{GpuVendor::kNvidia,
                            {{"GPU-1b7e", {}, ""}, {"GPU-2b7e", {}, ""}, {"GPU-9b7e", {}, ""}, {"GPU-ab7e", {}, ""}}};
    return chosen(wanted, four, inherited);
}

}  // namespace

TEST_CASE("NVIDIA's GPUs come in the order of their PCI addresses, with UUID and CPUs", "[launcher][unit]") {
    const GpuTree tree;
    CHECK(list_gpus(GpuVendor::kNvidia, tree.root.path()).empty());
    tree.four();
    const auto gpus = list_gpus(GpuVendor::kNvidia, tree.root.path());
    REQUIRE(gpus.size() == 4);
    CHECK(gpus[1].uuid == "GPU-2b");
    CHECK(gpus[1].near == kLow);
    CHECK(gpus[2].near == kHigh);
    std::filesystem::remove(tree.root.path() / "dev/nvidia0");  // as in a container with the other three
    CHECK(list_gpus(GpuVendor::kNvidia, tree.root.path())[1].uuid == "GPU-9b");
}

TEST_CASE("AMD's GPUs come in the order of the KFD nodes, and Intel's by PCI address", "[launcher][unit]") {
    const GpuTree tree;
    tree.kfd(0, "simd_count 0\n");
    tree.kfd(10, "simd_count 304\nlocation_id 33536\ndomain 0\nunique_id 42\n");  // bus 0x83
    tree.kfd(9, "simd_count 304\nlocation_id 768\ndomain 1\nunique_id 41\n");
    tree.pci("0000:83:00.0", "8-15");
    tree.pci("0001:03:00.0", "0-7");
    const auto amd = list_gpus(GpuVendor::kAmd, tree.root.path());
    REQUIRE(amd.size() == 2);
    CHECK(amd[0].uuid == "GPU-0000000000000029");
    CHECK(amd[0].near == kLow);
    CHECK(amd[1].near == kHigh);

    tree.intel("renderD128", "0000:b3:00.0", "8-15");
    tree.intel("renderD129", "0000:13:00.0", "0-7");
    const auto intel = list_gpus(GpuVendor::kIntel, tree.root.path());
    REQUIRE(intel.size() == 2);
    CHECK(intel[0].near == kLow);
}

TEST_CASE("a worker is near the GPU of its local rank among the visible ones", "[launcher][unit]") {
    const GpuTree tree;
    CHECK(tree.of(2).names.empty());
    CHECK(tree.of(2).near == Sets(2));
    tree.four();
    CHECK(tree.of(4).names == Names{"0", "1", "2", "3"});
    CHECK(tree.of(4).near == Sets{kLow, kLow, kHigh, kHigh});
    CHECK(tree.of(2, {{"CUDA_VISIBLE_DEVICES", "3,0,1"}}).names == Names{"3", "0"});
    CHECK(tree.of(2, {{"CUDA_VISIBLE_DEVICES", "3,0,1"}}).near == Sets{kHigh, kLow});
    CHECK(tree.of(3, {{"CUDA_VISIBLE_DEVICES", "GPU-ab,MIG-GPU-1b/3/0,MIG-77"}}).near == Sets{kHigh, kLow, {}});
    CHECK(tree.of(2, {{"CUDA_VISIBLE_DEVICES", "9,1"}}).names.empty());  // CUDA shows none
    CHECK(tree.of(1, {{"CUDA_VISIBLE_DEVICES", "1,9"}}).near == Sets{kLow});
    CHECK(tree.of(5).names.empty());  // their local ranks do not choose GPUs
    CHECK(tree.of(1, {{"CUDA_VISIBLE_DEVICES", ""}}).names.empty());
}

TEST_CASE("AMD's lists apply one below the other", "[launcher][unit]") {
    const GpuTree tree;
    for (int number = 1; number < 4; ++number) {
        const std::string bus = std::to_string(number);
        tree.kfd(number, "simd_count 1\nlocation_id " + std::to_string(number << 8) + "\ndomain 0\nunique_id 0\n");
        tree.pci("0000:0" + bus + ":00.0", bus);
    }
    CHECK(tree.of(2).near == Sets{{1}, {2}});
    CHECK(tree.of(2, {{"ROCR_VISIBLE_DEVICES", "2,0"}}).near == Sets{{3}, {1}});
    CHECK(tree.of(1, {{"ROCR_VISIBLE_DEVICES", "2,0"}, {"HIP_VISIBLE_DEVICES", "1"}}).near == Sets{{1}});
    CHECK(tree.of(1, {{"CUDA_VISIBLE_DEVICES", "2"}}).near == Sets{{3}});
    CHECK(tree.of(1, {{"CUDA_VISIBLE_DEVICES", "2"}, {"HIP_VISIBLE_DEVICES", "0"}}).near == Sets{{1}});
}

TEST_CASE("the option --gpus becomes a list of visible devices", "[launcher][unit]") {
    CHECK(chosen({}) == "0,1,2,3");
    CHECK(chosen({"2", "0"}) == "2,0");
    CHECK(chosen({"GPU-9b", "MIG-5/1/0"}) == "GPU-9b,MIG-5/1/0");
    CHECK(chosen({"4"}) ==
          "refused: --gpus: 4 is not a GPU of this machine, which has 4 GPUs. Choose from 0 to 3, or from the UUIDs of "
          "`nvidia-smi -L`.");
    CHECK_THAT(chosen({"GPU-77"}), Catch::StartsWith("refused: --gpus: GPU-77 is not a GPU of this machine"));
    CHECK(chosen({"1", "0", "1"}) == "refused: --gpus: 1 is named twice. Name each GPU once.");
    CHECK(chosen({"1", "GPU-2b7e"}) == "refused: --gpus: GPU-2b7e is named twice. Name each GPU once.");
    CHECK(chosen({"GPU-77"}, GpuInventory{GpuVendor::kNvidia, {2, Gpu{}}}) == "GPU-77");  // UUIDs are not known here
}

TEST_CASE("the option --gpus chooses from the list that ddprun was started with", "[launcher][unit]") {
    const VisibleList inherited{"CUDA_VISIBLE_DEVICES", "3,GPU-1b"};
    CHECK(chosen({}, inherited) == "3,GPU-1b");
    CHECK(chosen({"0", "GPU-ab7e"}, inherited) == "0,GPU-ab7e");
    CHECK(chosen({"2"}, inherited) ==
          "refused: --gpus: 2 is not in CUDA_VISIBLE_DEVICES=3,GPU-1b. Choose GPUs of that list, as it names them, or "
          "unset the variable.");
    CHECK(chosen({"MIG-1"}, VisibleList{"CUDA_VISIBLE_DEVICES", "MIG-1,MIG-2"}) == "MIG-1");
    CHECK_THAT(chosen({"0"}, VisibleList{"CUDA_VISIBLE_DEVICES", ""}), Catch::Contains("hides all GPUs"));
    CHECK(chosen({"1"}, VisibleList{"CUDA_VISIBLE_DEVICES", " 3, 1 "}) == "1");
}

TEST_CASE("the option --gpus refuses an inherited list that names a GPU that does not exist", "[launcher][unit]") {
    const std::string list = GENERATE("9,1", "1,9", "NoDevFiles", "1,GPU-77");
    const std::string unknown = list.starts_with("1,") ? list.substr(2) : list.substr(0, list.find(','));
    CHECK(chosen({"1"}, VisibleList{"CUDA_VISIBLE_DEVICES", list}) ==
          "refused: --gpus: CUDA_VISIBLE_DEVICES=" + list + ": " + unknown +
              " is not a GPU of this machine, which has 4 GPUs. Choose from 0 to 3, or from the UUIDs of "
              "`nvidia-smi -L`.");
}

TEST_CASE("GPUs without a UUID, or with that of another, differ in their numbers", "[launcher][unit]") {
    const std::string uuid = GENERATE("", "GPU-7");
    const GpuInventory two{GpuVendor::kAmd, {{uuid, {}, ""}, {uuid, {}, ""}}};
    CHECK(chosen({"0", "1"}, two) == "0,1");
    CHECK(chosen({}, two) == "0,1");
    CHECK_THAT(chosen({"1"}, two, VisibleList{"HIP_VISIBLE_DEVICES", "0"}),
               Catch::StartsWith("refused: --gpus: 1 is not in HIP_VISIBLE_DEVICES=0."));
    CHECK_THAT(chosen({"2"}, two), Catch::EndsWith("or from the UUIDs of `rocminfo`."));
}

TEST_CASE("the numbers of GPUs of several models have no known location, unless PCI addresses order them",
          "[launcher][unit]") {
    const GpuTree tree;
    tree.four();
    tree.nvidia("0000:cb:00.0", 4, "GPU-cb", "8-15", "NVIDIA T400");
    CHECK(tree.of(2, {{"CUDA_VISIBLE_DEVICES", "0,GPU-ab"}}).near == Sets{{}, kHigh});
    CHECK(tree.of(1, {{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}}).near == Sets{kLow});
    CHECK(this_machine({}, tree.root.path()).gpus == 5);
}

TEST_CASE("the numbers of Intel's GPUs may be those of tiles", "[launcher][unit]") {
    const GpuTree tree;
    tree.intel("renderD128", "0000:b3:00.0", "8-15");
    CHECK(tree.of(1).near == Sets{{}});
    CHECK(tree.of(1, {{"ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE"}}).near == Sets{kHigh});
    CHECK(tree.of(2, {{"ZE_AFFINITY_MASK", "0,1"}}).names == Names{"0", "1"});
}

TEST_CASE("GPUs that this user may not open are not counted either", "[launcher][unit]") {
    const GpuTree tree;
    tree.four();
    std::filesystem::remove(tree.root.path() / "dev/nvidia3");
    tree.root.file("dev/nvidia77", "", 0600);  // no GPU of the driver
    CHECK(this_machine({}, tree.root.path()).gpus == 3);
    CHECK(tree.of(3).names.size() == 3);
}

TEST_CASE("the UUID of a GPU that no process has used yet is not known", "[launcher][unit]") {
    const GpuTree tree;
    tree.nvidia("0000:1b:00.0", 0, "GPU-????????", "0-7");
    tree.nvidia("0000:2b:00.0", 1, "GPU-????????", "0-7");
    CHECK(list_gpus(GpuVendor::kNvidia, tree.root.path()).at(0).uuid.empty());
}

TEST_CASE("the option --gpus sets the variable for ddprun and its workers, and the number of workers follows",
          "[launcher][unit]") {
    const GpuTree tree;
    Options options;
    Environment environment;
    CHECK(apply_gpus(options, environment, tree.root.path()).has_value());
    CHECK(environment.empty());
    options = parse_options({"--gpus", "1,3", "p"}, {}).value().options;
    const auto none = apply_gpus(options, environment, tree.root.path());
    REQUIRE_FALSE(none.has_value());
    CHECK_THAT(none.error().message, Catch::StartsWith("--gpus: this machine has no GPU to use (") &&
                                         Catch::EndsWith("Leave the option out."));
    tree.four();
    REQUIRE(apply_gpus(options, environment, tree.root.path()).has_value());
    CHECK(environment == Environment{{"CUDA_VISIBLE_DEVICES", "1,3"}});
    CHECK(std::string(std::getenv("CUDA_VISIBLE_DEVICES")) == "1,3");
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    CHECK(tree.of(2, environment, options).near == Sets{kLow, kHigh});
    CHECK(apply_gpus(options, environment, tree.root.path()).has_value());  // in an emulated node, once more
    CHECK(environment == Environment{{"CUDA_VISIBLE_DEVICES", "1,3"}});
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    const auto too_few = gpus_of_workers(options, 3, environment, tree.root.path());
    REQUIRE_FALSE(too_few.has_value());
    CHECK(too_few.error().message ==
          "--gpus: 2 GPUs for the 3 workers of this node. Name one for each of them, or start 2 workers "
          "(--nproc-per-node).");
}

TEST_CASE("the option --gpus sets AMD's variables on a machine of theirs", "[launcher][unit]") {
    const GpuTree tree;
    tree.kfd(1, "simd_count 1\n");
    tree.kfd(2, "simd_count 1\n");
    Options options = parse_options({"--gpus", "1", "p"}, {}).value().options;
    Environment environment{{"CUDA_VISIBLE_DEVICES", "0,1"}, {"HIP_VISIBLE_DEVICES", "1"}};
    REQUIRE(apply_gpus(options, environment, tree.root.path()).has_value());
    CHECK(environment == Environment{{"CUDA_VISIBLE_DEVICES", "1"}, {"HIP_VISIBLE_DEVICES", "1"}});
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    ::unsetenv("HIP_VISIBLE_DEVICES");
}

TEST_CASE("the option --gpus of a machine with Intel's decides how many workers there are, unless a number is given",
          "[launcher][unit]") {
    const GpuTree tree;
    for (int card = 0; card < 3; ++card)
        tree.intel("renderD" + std::to_string(128 + card), "0000:0" + std::to_string(card) + ":00.0", "0-7");
    const auto [words, workers] = GENERATE(table<Names, int>({{{"p"}, 2},
                                                              {{"--nproc-per-node", "auto", "p"}, 2},
                                                              {{"--nproc-per-node", "xpu", "p"}, 2},
                                                              {{"--nproc-per-node", "1", "p"}, 1}}));
    Names line{"--gpus", "0,2"};
    line.insert(line.end(), words.begin(), words.end());
    Options options = parse_options(line, {}).value().options;
    Environment environment;
    REQUIRE(apply_gpus(options, environment, tree.root.path()).has_value());
    ::unsetenv("ZE_AFFINITY_MASK");
    CHECK(environment == Environment{{"ZE_AFFINITY_MASK", "0,2"}});
    CHECK(worker_count(options.programs[0].slots, this_machine(environment, tree.root.path())).value() == workers);
}
