// Every conversation of vectors.hpp, however it is cut into segments.
#include <span>
#include <string>
#include <string_view>

#include "tests/catch.hpp"
#include "tests/unit/rendezvous/store/codec/vectors.hpp"
#include "tests/unit/rendezvous/store/rig.hpp"

namespace ddprun::store::test {
namespace {

void check_request_by_request(std::span<const Vector> vectors) {
    Rig rig;
    for (const Vector& vector : vectors) {
        INFO(vector.what);
        CHECK(rig.ask('A', hex(vector.request)) == hex(vector.reply));
        REQUIRE_FALSE(rig.closed('A'));
    }
}

void check_byte_by_byte(std::span<const Vector> vectors) {
    Rig rig;
    for (const Vector& vector : vectors) {
        INFO(vector.what);
        for (const char byte : hex(vector.request)) {
            CHECK(rig.received('A').empty());  // nothing is answered before its last byte
            rig.send('A', std::string_view(&byte, 1));
        }
        CHECK(rig.received('A') == hex(vector.reply));
        REQUIRE_FALSE(rig.closed('A'));
    }
}

void check_in_two_pieces(std::span<const Vector> vectors) {
    std::string requests;
    std::string replies;
    for (const Vector& vector : vectors) {
        requests += hex(vector.request);
        replies += hex(vector.reply);
    }
    for (std::size_t cut = 0; cut <= requests.size(); ++cut) {  // 0: all in one segment
        CAPTURE(cut);
        Rig rig;
        rig.send('A', requests.substr(0, cut));
        rig.send('A', requests.substr(cut));
        REQUIRE(rig.received('A') == replies);
    }
}

TEST_CASE("modern vectors: request by request") { check_request_by_request(kModernVectors); }
TEST_CASE("modern vectors: R1, one byte per segment") { check_byte_by_byte(kModernVectors); }
TEST_CASE("modern vectors: R1, all in one segment, and cut in two at every byte") {
    check_in_two_pieces(kModernVectors);
}
TEST_CASE("old vectors: request by request") { check_request_by_request(kOldVectors); }
TEST_CASE("old vectors: R1, one byte per segment") { check_byte_by_byte(kOldVectors); }
TEST_CASE("old vectors: R1, all in one segment, and cut in two at every byte") { check_in_two_pieces(kOldVectors); }

TEST_CASE("old dialect: WATCH_KEY closes the connection, the requests before it are answered") {
    Rig rig;
    CHECK(rig.ask('A', hex("06") + hex("0702000000000000002f77")) == number(0));
    CHECK(rig.closed('A'));
}

}  // namespace
}  // namespace ddprun::store::test
