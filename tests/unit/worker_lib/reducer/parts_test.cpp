// The pure parts of a reducer: marks, the kind of the next backward, phases and averaging.
#include "tests/catch.hpp"
#include "worker_lib/src/reducer/averaging.hpp"
#include "worker_lib/src/reducer/gradient_marks.hpp"
#include "worker_lib/src/reducer/next_backward.hpp"
#include "worker_lib/src/reducer/phase.hpp"

using namespace ddp;
using namespace ddp::detail;
using Catch::Contains;

TEST_CASE("a gradient is complete at its last use, and unused ones keep what was accumulated", "[reducer]") {
    const std::vector<ParamSpec> specs{{"a", 1, DType::F32}, {"tied", 1, DType::F32, 2}};
    GradientMarks marks(specs);
    marks.begin(false);
    CHECK(marks.claim(1, false) == Fill::kNotYet);
    CHECK(marks.claim(1, false) == Fill::kNothing);  // without sync it stays where it is
    marks.complete(1);
    CHECK(marks.missing() == "'a'");
    CHECK(marks.claim(0, true) == Fill::kZero);
    marks.complete(0);
    CHECK(marks.missing() == "");
    CHECK(marks.ready_order().empty());
    marks.end(false);

    marks.begin(true);
    CHECK(marks.has_accumulated());
    CHECK(marks.claim(0, true) == Fill::kCopy);
    CHECK_THROWS_WITH(marks.claim(0, false), Contains("'a' was marked twice"));
    const auto rest = marks.claim_the_rest();
    REQUIRE(rest.size() == 1);
    CHECK(rest.front() == std::pair<std::size_t, Fill>{1, Fill::kCopy});
    marks.complete(1);
    marks.complete(0);
    CHECK(marks.ready_order() == std::vector<std::size_t>{1, 0});
    CHECK(marks.used() == std::vector<bool>{false, true});
    marks.end(true);

    marks.begin(true);
    CHECK(marks.used() == std::vector<bool>{false, false});
    CHECK(marks.claim(0, true) == Fill::kZero);
}

TEST_CASE("a backward is announced once while a Join lives, and no_sync makes it one without sync", "[join]") {
    NextBackward next;
    next.check(true);
    next.add_no_sync_guards(+1);
    CHECK_FALSE(next.synchronises(true));
    next.add_no_sync_guards(-1);
    CHECK(next.synchronises(true));

    next.join_begins();
    CHECK_THROWS_WITH(next.check(true), Contains("was not called before it"));
    next.announce(true);
    CHECK(next.is_owed());
    CHECK_THROWS_WITH(next.check(false), Contains("announced one with sync"));
    next.check(true);
    next.begin();
    CHECK_FALSE(next.is_owed());
    next.end_epoch();
    CHECK_THROWS_WITH(next.check(true), Contains("has returned false"));
    next.join_begins();  // before the old Join ends
    CHECK_THROWS_WITH(next.check(true), Contains("was not called before it"));
    next.join_ends();
    next.join_ends();
    next.check(true);
}

TEST_CASE("a failure that no call has thrown is thrown once as it was, then by its text", "[reducer]") {
    ReducerPhase phase;
    phase.begin(true);
    CHECK(phase.is_syncing());
    phase.fail("out of luck");
    CHECK(phase.has_failed());
    CHECK_FALSE(phase.in_backward());
    phase.keep_unreported(std::make_exception_ptr(7));
    CHECK_THROWS_AS(phase.refuse_if_failed(), int);
    CHECK_THROWS_WITH(phase.refuse_if_failed(), "this GradientReducer failed earlier: out of luck");
}

TEST_CASE("the factors correct a divisor that is not the number of ranks", "[reducer]") {
    Averaging in_reduce(Average::Auto, false, 4);
    CHECK(in_reduce.op() == ReduceOp::Avg);
    in_reduce.divide_by(2);
    CHECK(in_reduce.factor_before() * in_reduce.factor_after() == 2.0);
    Averaging before(Average::Pre, false, 4);
    CHECK(before.op() == ReduceOp::Sum);
    CHECK(before.factor_before() * before.factor_after() == 0.25);
    Averaging hook(Average::Post, true, 4);
    CHECK(hook.factor_after() == 1.0);
}
