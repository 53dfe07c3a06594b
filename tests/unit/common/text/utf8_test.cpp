// Bytes become valid UTF-8, for JSON and for terminals.
#include "common/text/utf8.hpp"

#include "tests/catch.hpp"

using namespace ddprun;

TEST_CASE("bytes that are not UTF-8 are replaced, everything else is kept", "[common][unit]") {
    const std::string r = "\xEF\xBF\xBD";
    CHECK(clean_text("plain é 节 🔥", 99) == "plain é 节 🔥");
    CHECK(clean_text("a\xff"
                     "b",
                     99) == "a" + r + "b");
    CHECK(clean_text("\xc0\xaf", 99) == r + r);                  // overlong
    CHECK(clean_text("\xe0\x80\xaf", 99) == r + r + r);          // overlong
    CHECK(clean_text("\xed\xa0\x80", 99) == r + r + r);          // a surrogate
    CHECK(clean_text("\xf4\x90\x80\x80", 99) == r + r + r + r);  // beyond U+10FFFF
    CHECK(clean_text("\xe8\x8a", 99) == r + r);                  // cut short
    CHECK(clean_text("\xf0\x9f\x94\xa5", 99) == "🔥");
}

TEST_CASE("text is cut between characters and the cut is marked", "[common][unit]") {
    CHECK(clean_text("abcdef", 6) == "abcdef");
    CHECK(clean_text("abcdefg", 6) == "abc…");
    CHECK(clean_text("abé", 4) == "abé");
    CHECK(clean_text("aébcd", 5) == "a…");
    CHECK(clean_text("🔥🔥", 4) == "…");
    CHECK(clean_text("", 3).empty());
}

TEST_CASE("printable text is valid UTF-8 without control characters", "[common][unit]") {
    const auto [bytes, expected] = GENERATE(table<std::string, std::string>({
        {"plain\ttext\n", "plain\ttext\n"},
        {"\x1b[1;31mred\x1b[0m", "red"},
        {"\x1b]", ""},
        {"\x1b", ""},
        {"\x1b[", ""},
        {"grüße €𝄞", "grüße €𝄞"},
        {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},                  // overlong
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},  // surrogate
        {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"},                  // cut
        {"\xf5\x80\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"a\x7f\x02", "a\\x7f\\x02"},
        {"\xc2\x9b[2J\xc2\xa0", "\\x9b[2J\xc2\xa0"},  // U+009B, which some terminals take for ESC [
    }));
    CHECK(printable(bytes, 100) == expected);
}

TEST_CASE("printable text is cut between two characters", "[common][unit]") {
    CHECK(printable("abc", 3) == "abc");
    CHECK(printable("abcd", 3) == "abc …");
    CHECK(printable("aéé", 4) == "aé …");
}
