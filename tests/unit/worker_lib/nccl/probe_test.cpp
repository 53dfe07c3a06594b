// Looking for NCCL on a machine that has none, an old one, or one without a device.

#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "ddp/error.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/worker_lib/nccl/fake_nccl.hpp"
#include "worker_lib/src/cuda/device_access.hpp"
#include "worker_lib/src/nccl/api.hpp"
#include "worker_lib/src/nccl/library.hpp"
#include "worker_lib/src/nccl/nccl.hpp"

using namespace ddp;
using namespace ddp::abi;
using Catch::Matchers::Contains;

namespace {

/// Sets a variable during a test.
class SetVariable {
public:
    SetVariable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
    ~SetVariable() { ::unsetenv(name_); }
    SetVariable(const SetVariable&) = delete;
    SetVariable& operator=(const SetVariable&) = delete;

private:
    const char* const name_;
};
constexpr const char* kLibrary = "DDPRUN_NCCL_LIBRARY";

}  // namespace

TEST_CASE("nccl: a library that is not there is named", "[nccl]") {
    const SetVariable library(kLibrary, "/nonexistent");
    const auto found = detail::probe_nccl();
    CHECK_FALSE(found.usable);
    CHECK_THAT(found.reason, Contains("DDPRUN_NCCL_LIBRARY=/nonexistent cannot be loaded"));
}

TEST_CASE("nccl: a library that is not NCCL is recognized by the function that it lacks", "[nccl]") {
    const SetVariable library(kLibrary, "libc.so.6");
    CHECK_THAT(detail::probe_nccl().reason, Contains("/libc.so.6 has no function ncclGetVersion") &&
                                                Contains("DDPRUN_NCCL_LIBRARY names another file"));
}

TEST_CASE("nccl: an NCCL that is too old is refused by its version", "[nccl]") {
    const SetVariable library(kLibrary, OLD_NCCL_LIBRARY);
    const auto found = detail::probe_nccl();
    CHECK_FALSE(found.usable);
    CHECK(found.reason == std::string("NCCL 2.16.2 (") + OLD_NCCL_LIBRARY +
                              ") is too old, 2.18.0 or newer is needed; DDPRUN_NCCL_LIBRARY names another file");
}

TEST_CASE("nccl: without a device the probe reports what is missing", "[nccl]") {
    const auto found = detail::probe_nccl();
    INFO(found.reason);
    const auto nccl = detail::load_nccl();
    const auto cuda = detail::load_cuda();
    const auto api = detail::load_gpu_api();
    const bool has_device = api && detail::count_devices(api->cuda);
    CHECK(found.usable == has_device);
    if (has_device) return;
    if (nccl) CHECK_THAT(found.reason, Contains("NCCL " + detail::nccl_version_text(nccl->version)));
    if (nccl && !cuda) CHECK_THAT(found.reason, Contains(" is present, but there is no CUDA driver (libcuda.so.1 "));
    if (api) CHECK_THAT(found.reason, Contains(" is present, but there is no CUDA device"));
    CHECK_THROWS_WITH(detail::open_device(0), Contains("no CUDA device for local rank 0: there is no CUDA d"));
}

TEST_CASE("nccl: a rank has the device of its local rank, or the only one that it sees", "[nccl]") {
    test::FakeGpu gpu;
    std::map<std::string, std::string> set;
    const auto variables = [&](const char* name) {
        const auto found = set.find(name);
        return found == set.end() ? std::nullopt : std::optional(found->second);
    };
    const auto probe = [&](int device, int local_rank) {
        return detail::probe_nccl(gpu.api(), device, local_rank, variables);
    };
    gpu.devices = 4;
    CHECK(probe(-1, 3).device == 3);
    CHECK(probe(1, 3).device == 1);
    CHECK(probe(-1, 3).uuid == "GPU-00000000-0000-0000-0000-000000000003");
    CHECK_THAT(probe(-1, 3).gpu, Catch::StartsWith("0000:13:00/"));
    CHECK(probe(-1, 3).gpu != probe(-1, 2).gpu);
    gpu.slices = 2;  // of MIG: NCCL compares bus ids
    CHECK(probe(-1, 3).gpu == probe(-1, 2).gpu);
    CHECK(probe(-1, 3).uuid != probe(-1, 2).uuid);
    gpu.slices = 1;
    CHECK_THAT(probe(-1, 4).reason, Contains("4 CUDA devices are present, but none for local rank 4"));
    CHECK_THAT(probe(4, 0).reason, Contains("4 CUDA devices are present, but no CUDA device 4"));
    {
        const SetVariable visible("CUDA_VISIBLE_DEVICES", "0,1,2,3");
        CHECK_THAT(probe(-1, 4).reason,
                   Contains("4 CUDA devices are present (CUDA_VISIBLE_DEVICES=0,1,2,3), but none for local rank 4"));
        gpu.devices = 0;
        CHECK_THAT(probe(-1, 0).reason, Contains("there is no CUDA device (CUDA_VISIBLE_DEVICES=0,1,2,3)"));
        gpu.devices = 4;
    }
    CHECK_FALSE(probe(-1, 4).usable);
    gpu.devices = 1;  // srun --gpus-per-task=1
    CHECK(probe(-1, 3).usable);
    CHECK(probe(-1, 3).device == 0);

    set["NCCL_HOSTID"] = "node-1";
    CHECK(probe(-1, 3).gpu == "0000:10:00/node-1");
    set["NCCL_MULTI_RANK_GPU_ENABLE"] = "1";
    CHECK(detail::probe_nccl(gpu.api(23002), -1, 3, variables).gpu != "");  // does not know the variable
    CHECK(detail::probe_nccl(gpu.api(23003), -1, 3, variables).gpu == "");
    set.clear();
    const TemporaryDirectory directory;
    std::ofstream(directory.path() / ".nccl.conf") << "# of this user\nNCCL_HOSTID=node-2\n" << std::flush;
    set["HOME"] = directory.path().string();
    CHECK(probe(-1, 3).gpu == "0000:10:00/node-2");
    std::ofstream(directory.path() / "other") << "NCCL_HOSTID=node-3\n" << std::flush;
    set["NCCL_CONF_FILE"] = (directory.path() / "other").string();
    CHECK(probe(-1, 3).gpu == "0000:10:00/node-3");
}
