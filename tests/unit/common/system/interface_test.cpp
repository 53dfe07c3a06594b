#include "common/system/interface.hpp"

#include <ifaddrs.h>
#include <net/if.h>

#include <memory>

#include "tests/catch.hpp"

using namespace ddprun;

TEST_CASE("an interface is found by each of its addresses, the loopback interface by none", "[common]") {
    CHECK(interface_with("127.0.0.1") == "");
    CHECK(interface_with("::1") == "");
    CHECK(interface_with("") == "");
    CHECK(interface_with("203.0.113.77") == "");  // reserved for documentation
    ifaddrs* list = nullptr;
    REQUIRE(::getifaddrs(&list) == 0);
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
        const std::string address = numeric(entry->ifa_addr);
        if (address.empty() || address.starts_with("fe80:")) continue;  // several interfaces may have the latter
        CHECK(interface_with(address) == entry->ifa_name);
        CHECK(source_address_to(address) == address);
    }
}

TEST_CASE("the address of this machine towards another is found without a packet", "[common]") {
    CHECK(source_address_to("127.0.0.1") == "127.0.0.1");
    CHECK(source_address_to("not an address") == "");
}
