// Looking for NCCL on a machine that has none, an old one, or one without a device.

#include <cstdlib>
#include <optional>

#include "ddp/error.hpp"
#include "tests/catch.hpp"
#include "worker_lib/src/cuda/device_access.hpp"
#include "worker_lib/src/nccl/api.hpp"
#include "worker_lib/src/nccl/library.hpp"
#include "worker_lib/src/nccl/nccl.hpp"

using namespace ddp;
using namespace ddp::abi;
using Catch::Matchers::Contains;

namespace {

/// Sets DDPRUN_NCCL_LIBRARY during a test.
class NcclLibrary {
public:
    explicit NcclLibrary(const char* path) { ::setenv(kName, path, 1); }
    ~NcclLibrary() { ::unsetenv(kName); }
    NcclLibrary(const NcclLibrary&) = delete;
    NcclLibrary& operator=(const NcclLibrary&) = delete;

private:
    static constexpr const char* kName = "DDPRUN_NCCL_LIBRARY";
};

}  // namespace

TEST_CASE("nccl: a library that is not there is named", "[nccl]") {
    const NcclLibrary library("/nonexistent");
    const auto found = detail::probe_nccl();
    CHECK_FALSE(found.usable);
    CHECK_THAT(found.reason, Contains("DDPRUN_NCCL_LIBRARY=/nonexistent cannot be loaded"));
}

TEST_CASE("nccl: a library that is not NCCL is recognized by the function that it lacks", "[nccl]") {
    const NcclLibrary library("libc.so.6");
    CHECK_THAT(detail::probe_nccl().reason, Contains("libc.so.6 has no function ncclGetVersion"));
}

TEST_CASE("nccl: an NCCL that is too old is refused by its version", "[nccl]") {
    const NcclLibrary library(OLD_NCCL_LIBRARY);
    const auto found = detail::probe_nccl();
    CHECK_FALSE(found.usable);
    CHECK(found.reason == "NCCL 2.16.2 is too old, 2.18.0 or newer is needed");
}

TEST_CASE("nccl: without a device the probe says what is missing, and no backend is made", "[nccl]") {
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
    CHECK_THROWS_WITH(detail::open_device(0), Contains("CUDA device 0 cannot be used: there is no CUDA d"));
    detail::GroupSpec spec;
    spec.members = {0};
    try {
        (void)detail::make_nccl_backend(spec);
        FAIL("a backend without a device");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::Unavailable);
    }
}
