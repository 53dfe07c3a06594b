#include "launcher/scheduler/host_list.hpp"

#include "tests/catch.hpp"

namespace ddprun::launcher {
namespace {

using Names = std::vector<std::string>;

TEST_CASE("a list of hosts is expanded in order", "[launcher]") {
    const auto [list, hosts] = GENERATE(table<std::string, Names>({
        {"n1", {"n1"}},
        {"n1,n3", {"n1", "n3"}},
        {"n[1-3]", {"n1", "n2", "n3"}},
        {"n[1-2,7,09-11]", {"n1", "n2", "n7", "n09", "n10", "n11"}},
        {"login,gpu-a[01-02],gpu-b3", {"login", "gpu-a01", "gpu-a02", "gpu-b3"}},
        {"rack[0-1]n[08-09]-ib", {"rack0n08-ib", "rack0n09-ib", "rack1n08-ib", "rack1n09-ib"}},
        {"[1-2]x", {"1x", "2x"}},
    }));
    const auto expanded = expand_host_list(list);
    REQUIRE(expanded.has_value());
    CHECK(*expanded == hosts);
}

TEST_CASE("what is not a list of hosts is refused with the part that cannot be read", "[launcher]") {
    const auto [list, part] = GENERATE(table<std::string, std::string>({
        {"", "''"},
        {"n1,", "''"},
        {"n1,n[2", "'n[2'"},
        {"n2]", "'n2]'"},
        {"n[]", "'n[]'"},
        {"n[1-]", "'n[1-]'"},
        {"n[3-1]", "'n[3-1]'"},
        {"n[a]", "'n[a]'"},
        {"n[-1]", "'n[-1]'"},
        {"n[00000000001]", "'n[00000000001]'"},
        {"n[1-99999999999]", "'n[1-99999999999]'"},
    }));
    const auto expanded = expand_host_list(list);
    REQUIRE_FALSE(expanded.has_value());
    CHECK(expanded.error().code == Errc::kMalformed);
    CHECK(expanded.error().message == part + " is not a list of hosts");
}

TEST_CASE("a list with more hosts than a job may have is refused before it is expanded", "[launcher]") {
    CHECK(expand_host_list("n[1-16384]")->size() == 16'384);
    for (const char* list : {"n[1-16385]", "n[1-2000000000]", "r[1-1000]n[1-1000]", "n[1-9000],m[1-9000]"}) {
        const auto expanded = expand_host_list(list);
        REQUIRE_FALSE(expanded.has_value());
        CHECK(expanded.error().code == Errc::kLimit);
    }
}

}  // namespace
}  // namespace ddprun::launcher
