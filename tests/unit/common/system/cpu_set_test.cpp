// Sets of CPUs, their text form, and the affinity mask.

#include "common/system/cpu_set.hpp"

#include <sched.h>

#include <thread>

#include "tests/catch.hpp"

using namespace ddprun;

TEST_CASE("a list of CPUs is written and read as the kernel does", "[common][unit]") {
    CHECK(number_list({}) == "");
    CHECK(number_list({3}) == "3");
    CHECK(number_list({0, 1, 2, 8, 10, 11}) == "0-2,8,10-11");
    CHECK(parse_number_list("0-2,8,10-11\n") == CpuSet{0, 1, 2, 8, 10, 11});
    CHECK(parse_number_list("\n").empty());
    CHECK(parse_number_list("").empty());
    CHECK(parse_number_list("x,1-,-2,5") == CpuSet{5});
}

TEST_CASE("the intersection of two sets of CPUs", "[common][unit]") {
    CHECK(common_cpus({0, 1, 2}, {1, 2, 3}) == CpuSet{1, 2});
    CHECK(common_cpus({0}, {1}).empty());
}

TEST_CASE("a mask has a bit for each CPU, and is as long as it needs to be", "[common][unit]") {
    CHECK(cpu_mask({}).empty());
    CHECK(cpu_mask({0, 3}) == CpuMask{9});
    CHECK(cpu_mask({64, 130}) == CpuMask{0, 1, 4});
    CHECK(cpus_in({0, 1, 4}) == CpuSet{64, 130});
    CHECK(cpus_in({}).empty());
}

TEST_CASE("the allowed CPUs are those of the affinity mask", "[common][unit]") {
    const CpuSet before = allowed_cpu_set();
    REQUIRE_FALSE(before.empty());
    CHECK(allowed_cpus() == static_cast<int>(before.size()));
    CpuSet inside;
    std::thread([&] {  // which has a mask of its own
        CpuMask last = cpu_mask({*before.rbegin()});
        ::sched_setaffinity(0, last.size() * sizeof(last[0]), reinterpret_cast<cpu_set_t*>(last.data()));
        inside = allowed_cpu_set();
    })
        .join();
    CHECK(inside == CpuSet{*before.rbegin()});
}
