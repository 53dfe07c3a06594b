// The exit codes that ctest sees: a failure is never taken for "skipped".
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "tests/catch.hpp"

namespace {

/// The exit code of skip_probe.cpp, run with `cases`.
int code_of(const std::string& cases) {
    const std::string command = "\"" SKIP_PROBE "\" \"" + cases + "\" >/dev/null 2>&1";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a skipped case ends with 77, whatever failed with 1", "[tests]") {
    CHECK(code_of("passes") == 0);
    CHECK(code_of("is skipped") == 77);
    CHECK(code_of("fails and then is skipped") == 1);
    CHECK(code_of("skips and then fails") == 1);
    CHECK(code_of("fails as often*") == 1);
    CHECK(code_of("only prints*") == 0);
    CHECK(code_of("passes,is skipped") == 0);  // some did run
}
