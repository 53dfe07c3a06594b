// Lists of names and ranks.
#include "common/text/list.hpp"

#include "tests/catch.hpp"

using namespace ddprun;

TEST_CASE("a list of many names shows the first ones", "[common][unit]") {
    CHECK(list_of({}) == "");
    CHECK(list_of({"a"}) == "a");
    CHECK(list_of({"a", "b"}) == "a and b");
    CHECK(list_of({"a", "b", "c"}, 2) == "a, b and c");
    CHECK(list_of({"a", "b", "c", "d"}, 2) == "a, b and 2 more");
}

TEST_CASE("of more names than are at hand the rest is counted", "[common][unit]") {
    CHECK(some_of({"a"}, 2, 1) == "a");
    CHECK(some_of({"a", "b"}, 2, 2) == "a, b");
    CHECK(some_of({"a", "b", "c"}, 2, 3) == "a, b and 1 more");
    CHECK(some_of({"a", "b"}, 8, 70) == "a, b and 68 more");
}

TEST_CASE("few ranks are named one by one, many by their ranges", "[common][unit]") {
    CHECK(name_ranks({7}) == "rank 7");
    CHECK(name_ranks({1, 2, 7}) == "ranks 1, 2 and 7");
    CHECK(name_rank_ranges({7}) == "rank 7");
    CHECK(name_rank_ranges({5, 3, 4, 9, 4}) == "ranks 3-5, 9");
    CHECK(range_of(4, 4) == "4");
    CHECK(ranges_of({0, 2, 4, 6, 8, 10, 12, 14, 16}) == "0, 2, 4, 6, 8, 10, 12, 14, … (9 in all)");
}
