// choose_address(): the address that a rank publishes.

#include "worker_lib/src/native/net/interfaces.hpp"

#include <algorithm>

#include "ddp/error.hpp"
#include "tests/catch.hpp"

using namespace ddp;
using namespace ddp::detail;

namespace {

const std::vector<InterfaceAddress> kHost{{"lo", "127.0.0.1"}, {"eth0", "10.77.0.1"}, {"eth10", "10.80.0.1"},
                                          {"ib0", "fd77::1"},  {"ib0", "10.79.0.1"},  {"lo", "::1"},
                                          {"wlan0", "fd78::1"}};

std::string chosen(const char* wanted, const std::string& usual = "10.77.0.1") {
    return choose_address(wanted, usual, kHost);
}

}  // namespace

TEST_CASE("the address that reached the store is the default", "[native][unit]") {
    CHECK(choose_address(std::nullopt, "10.1.2.3", kHost) == "10.1.2.3");
    CHECK(chosen("", "10.1.2.3") == "10.1.2.3");
}

TEST_CASE("an interface is chosen by the beginning of its name, or by the whole name", "[native][unit]") {
    CHECK(chosen("eth") == "10.77.0.1");
    CHECK(chosen("eth1") == "10.80.0.1");
    CHECK(chosen("=eth10") == "10.80.0.1");
    CHECK(chosen("ib") == "10.79.0.1");
    CHECK(chosen("ib", "fd77::9") == "fd77::1");
    CHECK(chosen("wlan") == "fd78::1");
    CHECK(chosen("ib,eth") == "10.79.0.1");
    CHECK(chosen("no,,eth") == "10.77.0.1");
    CHECK(chosen("=no,eth0") == "10.77.0.1");
}

TEST_CASE("the error for a missing interface lists the existing ones", "[native][unit]") {
    CHECK_THROWS_WITH(chosen("=eth1"),
                      Catch::Contains("DDPRUN_SOCKET_IFNAME is '=eth1'") &&
                          Catch::Contains("Interfaces that are up: lo (127.0.0.1), eth0 (10.77.0.1), eth10"));
    CHECK_THROWS_AS(chosen("="), Error);
    CHECK_THROWS_AS(chosen("^lo"), Error);
}

TEST_CASE("this host has a loopback address", "[native][unit]") {
    const auto here = interface_addresses();
    CHECK(std::ranges::find(here, "127.0.0.1", &InterfaceAddress::address) != here.end());
}
