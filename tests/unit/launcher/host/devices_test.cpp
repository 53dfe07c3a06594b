// Which accelerators a machine has, by a tree of files like that of the kernel.

#include "launcher/host/devices.hpp"

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddprun;
using namespace ddprun::launcher;

namespace {

/// A tree with /dev and /sys of a machine with devices of three vendors.
struct DeviceTree {
    TemporaryDirectory root;

    void nvidia() const {
        for (const char* name : {"nvidia0", "nvidia1", "nvidia11", "nvidiactl", "nvidia-uvm", "nvidia"})
            root.file(std::string("dev/") + name, "", 0600);
    }
    void amd(int gpus) const {
        root.file("dev/kfd", "", 0600);
        kfd_node(0, "cpu_cores_count 64\nsimd_count 0\n");
        for (int gpu = 1; gpu <= gpus; ++gpu) kfd_node(gpu, "cpu_cores_count 0\nsimd_count 304\n");
    }
    void kfd_node(int number, const std::string& properties) const {
        root.file("sys/class/kfd/kfd/topology/nodes/" + std::to_string(number) + "/properties", properties, 0600);
    }
    void drm(const std::string& name, const std::string& vendor, const std::string& driver) const {
        const std::string device = "sys/class/drm/" + name + "/device/";
        root.file(device + "vendor", vendor + "\n", 0600);
        std::filesystem::create_symlink("../../bus/pci/drivers/" + driver, root.path() / (device + "driver"));
    }
    Devices count(const Environment& environment = {}) const { return count_devices(environment, root.path()); }
};

}  // namespace

TEST_CASE("NVIDIA's GPUs are counted by device file and narrowed by CUDA_VISIBLE_DEVICES", "[launcher][unit]") {
    const DeviceTree tree;
    CHECK(tree.count().nvidia == 0);
    CHECK(tree.count({{"CUDA_VISIBLE_DEVICES", "0,1"}}).nvidia == 0);
    tree.nvidia();
    CHECK(tree.count().nvidia == 3);
    CHECK(tree.count({{"CUDA_VISIBLE_DEVICES", ""}}).nvidia == 0);
    CHECK(tree.count({{"CUDA_VISIBLE_DEVICES", "-1"}}).nvidia == 0);
    CHECK(tree.count({{"CUDA_VISIBLE_DEVICES", "1"}}).nvidia == 1);
    CHECK(tree.count({{"CUDA_VISIBLE_DEVICES", "0,1,-1,2"}}).nvidia == 2);
    CHECK(tree.count({{"CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b,MIG-c,MIG-d"}}).nvidia == 4);
    CHECK(tree.count({{"CUDA_VISIBLE_DEVICES", " 2, 9,1"}}).nvidia == 1);  // CUDA stops at 9
    CHECK(tree.count({{"CUDA_VISIBLE_DEVICES", "NoDevFiles"}}).nvidia == 0);
}

TEST_CASE("AMD's GPUs are the KFD nodes with SIMD units, if /dev/kfd can be opened", "[launcher][unit]") {
    const DeviceTree tree;
    tree.amd(3);
    CHECK(tree.count().amd == 3);
    CHECK(tree.count({{"HIP_VISIBLE_DEVICES", "0,2"}}).amd == 2);
    CHECK(tree.count({{"CUDA_VISIBLE_DEVICES", "1"}}).amd == 1);
    CHECK(tree.count({{"CUDA_VISIBLE_DEVICES", "1"}, {"HIP_VISIBLE_DEVICES", "0,1"}}).amd == 2);
    CHECK(tree.count({{"ROCR_VISIBLE_DEVICES", "0"}, {"HIP_VISIBLE_DEVICES", "0,1"}}).amd == 1);
    CHECK(tree.count({{"HIP_VISIBLE_DEVICES", "0,1,2,3,4"}}).amd == 3);
    std::filesystem::remove(tree.root.path() / "dev/kfd");
    CHECK(tree.count().amd == 0);
}

TEST_CASE("Intel's GPUs are the render nodes of its drivers", "[launcher][unit]") {
    const DeviceTree tree;
    tree.drm("renderD128", "0x8086", "xe");
    tree.drm("renderD129", "0x8086", "i915");
    tree.drm("renderD130", "0x1002", "amdgpu");
    tree.drm("renderD131", "0x8086", "vfio-pci");
    tree.drm("card0", "0x8086", "xe");
    CHECK(tree.count().intel == 2);
    CHECK(tree.count().nvidia + tree.count().amd == 0);
    CHECK(tree.count({{"ZE_AFFINITY_MASK", "1"}}).intel == 1);
    CHECK(tree.count({{"ZE_AFFINITY_MASK", "0.0,0.1,1.0"}}).intel == 3);
    CHECK(tree.count({{"ZE_AFFINITY_MASK", ""}}).intel == 2);
}
