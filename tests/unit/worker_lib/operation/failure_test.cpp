// Failure: the texts that are made of it at the edge, with names and tags of the program's own.

#include <string>

#include "tests/catch.hpp"
#include "worker_lib/src/group/departure.hpp"
#include "worker_lib/src/operation/failure.hpp"

using namespace ddp;
using namespace ddp::detail;

namespace {

const Failure kNoMemory{.code = ErrorCode::System, .cause = "no memory", .culprits = {3}};
const Failure kLost = departure_failure(1, "rank 1 (host b, pid 7)", Departure::kEnded, 5);

std::string text(const Failure& failure, const std::string& group = "world") {
    return to_error(failure, group, "rank 0").what();
}

/// Throws it and catches it as callers do.
Error thrown(const Failure& failure) {
    try {
        throw FailureError(failure, "world", "rank 0");
    } catch (const Error& error) {
        CHECK(failure_of(error) == failure);
        return error;
    }
}

}  // namespace

TEST_CASE("the text of a failure names the group, the rank that cannot finish, and the reporter, once each", "[unit]") {
    CHECK(text(kNoMemory) == "group 'world': no memory");
    const Failure met = met_in("#2 barrier", kNoMemory);
    CHECK(text(met) == "group 'world': rank 0 cannot finish #2 barrier: no memory");
    const Failure reported = reported_by("rank 3 (host a, pid 6)", met);
    CHECK(text(reported) == "group 'world': rank 3 (host a, pid 6) reported: no memory");
    const Failure third = met_in("#3 barrier", reported);
    CHECK(text(third) == "group 'world': rank 0 cannot finish #3 barrier: rank 3 (host a, pid 6) reported: no memory");
    // Neither the rank that passes it on nor the first operation of this rank is added.
    CHECK(met_in("#4 barrier", reported_by("rank 2", third)) == met_in("#4 barrier", reported));
    CHECK(to_error(third, "world", "rank 0").code() == ErrorCode::System);
    CHECK(to_error(third, "world", "rank 0").culprits() == std::vector<int>{3});
}

TEST_CASE("a lost rank needs no reporter, unless a rank could not finish an operation without it", "[unit]") {
    const std::string gone = "rank 1 (host b, pid 7) is gone: its process ended after operation #5";
    CHECK(kLost.culprits == std::vector<int>{1});
    CHECK(reported_by("rank 3", kLost) == kLost);
    CHECK(text(met_in("#6 barrier", reported_by("rank 3", kLost))) ==
          "group 'world': rank 0 cannot finish #6 barrier: " + gone);
    CHECK(text(met_in("#7 barrier", reported_by("rank 3 (host a, pid 6)", met_in("#6 barrier", kLost)))) ==
          "group 'world': rank 0 cannot finish #7 barrier: rank 3 (host a, pid 6) reported: " + gone);
}

TEST_CASE("names and tags may look like any part of the text", "[unit]") {
    const std::string hostile = "#2 barrier 'x': rank 9 cannot finish #1: rank 8 reported: group 'world': '";
    Failure failure = met_in(hostile, kNoMemory);
    failure.cause = "it's: group 'a': b cannot finish c: d reported: e";
    const Failure reported = reported_by("rank 3 (host it's: x reported: , pid 6)", failure);
    CHECK(text(failure, "g': y") == "group 'g': y': rank 0 cannot finish " + hostile + ": " + failure.cause);
    CHECK(text(reported, "g': y") == "group 'g': y': " + reported.reporter + " reported: " + failure.cause);
    CHECK(text(met_in("#3 barrier ': '", reported)) ==
          "group 'world': rank 0 cannot finish #3 barrier ': ': " + reported.reporter + " reported: " + failure.cause);
}

TEST_CASE("a cause that names its group gets no name of the group in front", "[unit]") {
    const Failure aborted{
        .code = ErrorCode::Aborted, .cause = "group 'world' was aborted by rank 3: NaN", .names_group = true};
    CHECK(text(aborted) == aborted.cause);
    CHECK(text(reported_by("rank 3", aborted)) == "rank 3 reported: " + aborted.cause);
    CHECK(text(met_in("#6 barrier", aborted)) == "group 'world': rank 0 cannot finish #6 barrier: " + aborted.cause);
}

TEST_CASE("a failure that is thrown keeps its parts, and any other error is its own cause", "[unit]") {
    CHECK(thrown(met_in("#2 barrier", kNoMemory)).what() ==
          std::string("group 'world': rank 0 cannot finish #2 barrier: no memory"));
    CHECK(thrown(reported_by("rank 3", kLost)).code() == ErrorCode::PeerLost);
    const Failure found = failure_of(Error(ErrorCode::Io, "poll failed: reported: x", {2}));
    CHECK(found.kind == FailureKind::kOwn);
    CHECK(text(found) == "poll failed: reported: x");
    CHECK(found.code == ErrorCode::Io);
    CHECK(found.culprits == std::vector<int>{2});
}
