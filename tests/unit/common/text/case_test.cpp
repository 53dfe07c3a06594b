#include "common/text/case.hpp"

#include "tests/catch.hpp"

TEST_CASE("lower case changes ASCII letters and nothing else", "[common][unit]") {
    CHECK(ddprun::lower_case("API_Key-9Z") == "api_key-9z");
    CHECK(ddprun::lower_case("\xc3\x84 [") == "\xc3\x84 [");
    CHECK(ddprun::lower_case("").empty());
}
