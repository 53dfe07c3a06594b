#include "common/system/tcp_table.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include "tests/catch.hpp"

using namespace ddprun;

namespace {

/// Spells words of an address, in network order, as the kernel does: in the machine's order.
std::string spelled(std::initializer_list<std::uint32_t> words) {
    std::string text;
    for (const std::uint32_t word : words) text += fmt::format("{:08X}", htonl(word));
    return text;
}

}  // namespace

TEST_CASE("an address of the kernel's table is written for people, IPv4 never as IPv6", "[common]") {
    CHECK(numeric_host({spelled({0x7f000001}), 1}) == "127.0.0.1");
    CHECK(numeric_host({spelled({0xfe800000, 0, 0, 0x12}), 1}) == "fe80::12");
    CHECK(numeric_host({spelled({0, 0, 0xffff, 0x0a4d0001}), 1}) == "10.77.0.1");
    for (const char* malformed : {"", "0100007", "0100007F0100007F"}) CHECK(numeric_host({malformed, 1}).empty());
}
