// The NCCL that is installed here, without a device. scripts/check-nccl-versions runs this file over others.

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "ddp/error.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/nccl/group.hpp"
#include "worker_lib/src/nccl/communicator.hpp"
#include "worker_lib/src/nccl/library.hpp"

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
using namespace std::chrono_literals;
using namespace ddp::abi;
using Catch::Matchers::Contains;

TEST_CASE("nccl: the library here is known by its versions, and treats a group of calls as the fake does",
          "[nccl][library]") {
    const auto found = detail::load_nccl();
    if (!found) {
        WARN("SKIPPED: " << found.error().message);
        return;
    }
    CHECK(found->version >= kOldestNccl);
    CHECK(found->built_with >= 11000);
    const NcclApi& nccl = found->api;
    CHECK((nccl.comm_init_rank_scalable != nullptr) == (found->version >= 22304));
    CHECK((nccl.comm_revoke != nullptr) == (found->version >= 22807));
    CHECK_THAT(nccl.get_error_string(ncclInvalidUsage), Contains("invalid usage"));
    char byte = 0;
    CHECK(nccl.group_start() == ncclSuccess);
    CHECK(nccl.send(&byte, 1, ncclInt8, 0, nullptr, nullptr) == ncclInvalidArgument);  // there is no communicator
    CHECK(nccl.group_end() == ncclInvalidArgument);
    CHECK(nccl.group_start() == ncclSuccess);  // nothing is left of it
    CHECK(nccl.group_end() == ncclSuccess);
    CHECK(nccl.group_end() == ncclInvalidUsage);
}

TEST_CASE("nccl: the library here makes unique ids, and a failed start leaves the caller's thread as it was",
          "[nccl][library]") {
    const auto found = detail::load_nccl();
    if (!found) {
        WARN("SKIPPED: " << found.error().message);
        return;
    }
    const NcclApi& nccl = found->api;
    ncclUniqueId first{}, second{};
    REQUIRE(nccl.get_unique_id(&first) == ncclSuccess);
    REQUIRE(nccl.get_unique_id(&second) == ncclSuccess);
    CHECK(std::memcmp(&first, &second, sizeof first) != 0);

    // NCCL has a CUDA runtime of its own, which finds no driver or, where there is a device, no context of this fake.
    test::FakeGpu gpu;
    detail::GpuApi api = gpu.api(found->version);
    api.nccl = nccl;
    detail::GroupSpec spec;
    spec.name = "world";
    spec.members = {0, 1};  // the other one never comes
    const detail::Peers peers(spec, {detail::Peers::own_record(spec), detail::Peers::own_record(spec)});
    const auto device = std::make_shared<detail::GroupDevice>(api.cuda, 0);
    const auto limits = detail::NcclLimits{};
    std::vector<std::vector<ncclUniqueId>> lists{{first}};
    if (nccl.comm_init_rank_scalable != nullptr) lists.push_back({first, second});
    for (const auto& ids : lists) {
        const test::Outcome outcome = test::outcome_of(
            [&] { detail::Communicator(api, spec, device, ids, peers, ddprun::Clock::now() + 20s, limits); });
        CAPTURE(ids.size(), outcome.text);
        if (!detail::load_cuda()) {
            CHECK(outcome.code == ErrorCode::System);
            CHECK_THAT(outcome.text, Contains("NCCL could not start on CUDA device 0"));
        }
        CHECK(outcome.failed);
    }
    // From 2.26 on NCCL leaves a group of calls open on the thread in which its start fails.
    CHECK(nccl.group_end() == ncclInvalidUsage);
}
