// The plain values of the library: errors, names of codes, the version.
#include <string>
#include <type_traits>
#include <utility>

#include "ddp/error.hpp"
#include "ddp/version.hpp"
#include "tests/catch.hpp"

using ddp::Error;
using ddp::ErrorCode;

TEST_CASE("an error that was moved from is whole", "[error][unit]") {
    static_assert(std::is_nothrow_copy_constructible_v<Error> && std::is_nothrow_copy_assignable_v<Error>);
    Error first = Error(ErrorCode::PeerLost, "rank 3 was lost", {3}).in("world", "#7 barrier", 7);
    const Error second = std::move(first);
    for (const Error& error : {first, second}) {
        CHECK(error.code() == ErrorCode::PeerLost);
        CHECK(error.culprits() == std::vector<int>{3});
        CHECK(error.group() == "world");
        CHECK(error.operation() == "#7 barrier");
        CHECK(error.seq() == 7);
        CHECK(error.what() == std::string("rank 3 was lost"));
    }
}

TEST_CASE("a reworded error is about the same ranks, and about no operation", "[error][unit]") {
    const Error error = Error(ErrorCode::Timeout, "late", {1, 2}).in("world", "#7 barrier", 7).reported();
    const Error other = error.reworded("the ranks are late");
    CHECK(other.what() == std::string("the ranks are late"));
    CHECK(other.code() == ErrorCode::Timeout);
    CHECK(other.culprits() == std::vector<int>{1, 2});
    CHECK(other.peer_failed());
    CHECK(other.operation().empty());
    CHECK(other.seq() == 0);
}

TEST_CASE("every error code has its enumerator's name", "[error][unit]") {
    CHECK(to_string(ErrorCode::InvalidArgument) == "InvalidArgument");
    CHECK(to_string(ErrorCode::Timeout) == "Timeout");
    CHECK(to_string(ErrorCode::Io) == "Io");
    for (int code = 0; code <= static_cast<int>(ErrorCode::Superseded); ++code)
        CHECK(to_string(static_cast<ErrorCode>(code)) != "unknown");
    CHECK(to_string(static_cast<ErrorCode>(-1)) == "unknown");
}

TEST_CASE("the version at run time is the headers' one", "[version][unit]") {
    CHECK(ddp::version() == std::to_string(DDP_VERSION / 10000) + "." + std::to_string(DDP_VERSION / 100 % 100) + "." +
                                std::to_string(DDP_VERSION % 100));
}
