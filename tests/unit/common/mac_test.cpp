// HMAC-SHA256 against the test cases 1, 2 and 6 of RFC 4231.
#include "common/mac.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/catch.hpp"

using namespace ddprun;

namespace {

std::string hexadecimal(const std::vector<unsigned char>& key, std::string_view text) {
    return fmt::format("{:02x}", fmt::join(hmac_sha256(key, text), ""));
}

}  // namespace

TEST_CASE("HMAC-SHA256 is that of the standard", "[mac][unit]") {
    CHECK(hexadecimal(std::vector<unsigned char>(20, 0x0b), "Hi There") ==
          "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    CHECK(hexadecimal({'J', 'e', 'f', 'e'}, "what do ya want for nothing?") ==
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    CHECK(
        hexadecimal(std::vector<unsigned char>(131, 0xaa), "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("two HMACs are equal only in all bytes", "[mac][unit]") {
    const Mac one = hmac_sha256({}, "text");
    CHECK(equal_macs(one, hmac_sha256({}, "text")));
    for (std::size_t i = 0; i < one.size(); ++i) {
        Mac other = one;
        other[i] ^= 1;
        CHECK_FALSE(equal_macs(one, other));
    }
}
