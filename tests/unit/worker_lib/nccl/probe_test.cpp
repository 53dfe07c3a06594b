// Looking for NCCL on a machine that has none, an old one, or one without a device.

#include <cstdlib>
#include <optional>

#include "ddp/error.hpp"
#include "tests/catch.hpp"
#include "worker_lib/src/nccl/device/api.hpp"
#include "worker_lib/src/nccl/nccl.hpp"

#if defined(__SANITIZE_ADDRESS__)
// NCCL 2.28 leaves 160 bytes behind when a group of calls ends with an error.
extern "C" {
const char* __lsan_default_suppressions();
__attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
    return "leak:ncclGroupEndInternal\n";
}
}
#endif

using namespace ddp;
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

TEST_CASE("nccl: without a device the probe says which NCCL is here, and no backend is made", "[nccl]") {
    const auto found = detail::probe_nccl();
    INFO(found.reason);
    const auto api = detail::load_gpu_api();
    const bool has_device = api && detail::count_devices(api->cuda);
    CHECK(found.usable == has_device);
    if (api) CHECK_THAT(found.reason, Contains("NCCL " + detail::nccl_version_text(api->nccl_version) + " present"));
    if (has_device) return;
    if (api) CHECK_THAT(found.reason, Contains("present, no CUDA device"));
    detail::GroupSpec spec;
    spec.members = {0};
    try {
        (void)detail::make_nccl_backend(spec);
        FAIL("a backend without a device");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::Unavailable);
    }
}

TEST_CASE("nccl: the library here treats a group of calls as the fake does", "[nccl]") {
    const auto api = detail::load_gpu_api();
    if (!api) {
        WARN("SKIPPED: " << api.error().message);
        return;
    }
    const detail::NcclApi& nccl = api->nccl;
    char byte = 0;
    CHECK(nccl.group_start() == ncclSuccess);
    CHECK(nccl.send(&byte, 1, ncclInt8, 0, nullptr, nullptr) == ncclInvalidArgument);  // there is no communicator
    CHECK(nccl.group_end() == ncclInvalidArgument);
    CHECK(nccl.group_start() == ncclSuccess);  // nothing is left of it
    CHECK(nccl.group_end() == ncclSuccess);
    CHECK(nccl.group_end() == ncclInvalidUsage);
}
