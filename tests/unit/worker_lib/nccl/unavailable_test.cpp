// A build without CUDA or nccl.h.

#include "ddp/error.hpp"
#include "tests/catch.hpp"
#include "worker_lib/src/nccl/nccl.hpp"

using namespace ddp;

TEST_CASE("nccl: a build without it says so", "[nccl]") {
    const auto found = detail::probe_nccl();
    CHECK_FALSE(found.usable);
    CHECK_THAT(found.reason, Catch::Matchers::Contains("this build has no NCCL"));
    try {
        (void)detail::make_nccl_backend(detail::GroupSpec{});
        FAIL("a backend that was not built");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::Unavailable);
        CHECK_THAT(error.what(), Catch::Matchers::Contains("this build has no NCCL"));
    }
}
