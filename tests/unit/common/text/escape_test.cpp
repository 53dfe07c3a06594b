// Foreign text becomes a line of a log.
#include "common/text/escape.hpp"

#include <string>

#include "tests/catch.hpp"

using namespace ddprun;

TEST_CASE("colours, cursor movements and titles are left out of a text", "[common][unit]") {
    CHECK(without_sequences("plain") == "plain");
    CHECK(without_sequences("\x1b[1;31mloss\x1b[0m 0.5") == "loss 0.5");
    CHECK(without_sequences("\x1b[31mERROR\x1b(B\x1b[m") == "ERROR");  // tput sgr0
    CHECK(without_sequences("a\x1b[2Kb\x1b[?25lc") == "abc");
    CHECK(without_sequences("\x1b]0;title\ax\x1b]8;;url\x1b\\link") == "xlink");
    CHECK(without_sequences("\x1b"
                            "7a\x1b"
                            "8b") == "ab");
    for (const char* const unfinished : {"a\x1b", "a\x1b[", "a\x1b[1;3", "a\x1b]0;ti", "a\x1b]0;ti\x1b"})
        CHECK(without_sequences(unfinished) == "a");
}

TEST_CASE("control characters of peers cannot reach a terminal", "[common][unit]") {
    CHECK(log_line("node n1 joined") == "node n1 joined");
    CHECK(log_line("a\x1b[2Jb\r\nc\x7f") == "a\\x1b[2Jb\\x0d\\x0ac\\x7f");
    CHECK(log_line("\xc2\x9b"
                   "31m") == "\\x9b31m");  // the one-byte form of ESC [
    CHECK(log_line("caf\xc3\xa9 \xe2\x80\xa6") == "caf\xc3\xa9 \xe2\x80\xa6");
    CHECK(log_line(std::string(10'000, 'x')).size() == 2'000);
    CHECK(log_line("aéé", 4) == "a…");
    CHECK(log_line("a\n\n", 8) == "a\\x0a…");
}
