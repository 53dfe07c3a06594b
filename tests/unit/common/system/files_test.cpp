#include "common/system/files.hpp"

#include "tests/catch.hpp"

using ddprun::content_of;

TEST_CASE("a file that cannot be opened or read has no content", "[common][unit]") {
    CHECK(content_of("/proc/self/no-such-file").empty());
    CHECK(content_of("/proc/self/mem").empty());  // opens, but there is no memory at address 0
    CHECK_FALSE(content_of("/proc/self/cmdline").empty());
}
