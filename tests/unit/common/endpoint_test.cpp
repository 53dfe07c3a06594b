#include "common/endpoint.hpp"
#include "tests/catch.hpp"

using ddprun::Endpoint;
using ddprun::parse_endpoint;

TEST_CASE("an endpoint is read in every form that users write", "[common]") {
    CHECK(parse_endpoint("n1", 29400).value() == Endpoint{"n1", 29400});
    CHECK(parse_endpoint("n1:0", 29400).value() == Endpoint{"n1", 0});
    CHECK(parse_endpoint("10.0.0.7:29401", 29400).value() == Endpoint{"10.0.0.7", 29401});
    CHECK(parse_endpoint("[fd77::1]", 29400).value() == Endpoint{"fd77::1", 29400});
    CHECK(parse_endpoint("[fd77::1]:65535", 29400).value() == Endpoint{"fd77::1", 65535});
    CHECK(parse_endpoint("fd77::1", 29400).value() == Endpoint{"fd77::1", 29400});
    CHECK(parse_endpoint("fe80::1%eth0", 29400).value() == Endpoint{"fe80::1%eth0", 29400});
    CHECK(parse_endpoint("::ffff:10.0.0.7", 29400).value() == Endpoint{"::ffff:10.0.0.7", 29400});
}

TEST_CASE("a bad endpoint is refused with the reason and the accepted forms", "[common]") {
    for (const char* text : {"", ":29400", "n1:", "n1:65536", "n1:-1", "n1:x", "n1:1 ", "[fd77::1", "[fd77::1]29400",
                             "[]:1", "a:b:c", "n1:1:2", "10.0.0.7:1:2"}) {
        CAPTURE(text);
        const auto parsed = parse_endpoint(text, 29400);
        REQUIRE(parsed.has_error());
        CHECK(parsed.error().code == ddprun::Errc::kUsage);
        CHECK(parsed.error().message.find("host:port") != std::string::npos);
    }
}

TEST_CASE("an endpoint survives being written and read", "[common]") {
    for (const Endpoint& endpoint : {Endpoint{"n1", 1}, Endpoint{"fd77::1", 2}, Endpoint{"127.0.0.1", 29400}}) {
        CHECK(parse_endpoint(to_string(endpoint), 0).value() == endpoint);
    }
}
