// Text is cut between two characters, with a mark.
#include <array>
#include <string>

#include "common/text/cut.hpp"
#include "tests/catch.hpp"

using ddprun::cut;

TEST_CASE("text that fits stays, longer text ends with a whole character and a mark", "[common]") {
    CHECK(cut("", 3) == "");
    CHECK(cut("abc", 3) == "abc");
    CHECK(cut("abcd", 3) == "…");
    CHECK(cut("abcdef", 5) == "ab…");
    CHECK(cut("aéé", 5) == "aéé");
    CHECK(cut("aééé", 5) == "a…");
    CHECK(cut("aééé", 6) == "aé…");
    CHECK(cut("😀😀", 7) == "😀…");
    CHECK(cut("😀😀", 6) == "…");
    CHECK(cut("\x80\x80\x80\x80\x80", 4) == "…");  // no UTF-8 at all
}

TEST_CASE("a record gets the same text, without a zero byte if there is no room for one", "[common]") {
    std::array<char, 6> record{};
    ddprun::copy_cut(record, "aééé");
    CHECK(std::string(record.data(), record.size()) == "aé…");
    record = {};
    ddprun::copy_cut(record, "ab");
    CHECK(std::string(record.data()) == "ab");
}
