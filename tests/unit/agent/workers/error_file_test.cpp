#include "agent/workers/error_file.hpp"

#include <fstream>

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::agent;

TEST_CASE("both formats of torchrun's error files are understood", "[agent]") {
    const auto [text, message] = GENERATE(table<std::string, std::string>({
        {R"({"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "...", "timestamp": "1"}}})",
         "ValueError: x"},
        {R"({"message": "out of memory", "timestamp": 17})", "out of memory"},
        {R"({"message": "no time"})", "no time"},
        {"", ""},
    }));
    CHECK(parse_error_file(text).value() == message);
}

TEST_CASE("a malformed error file is rejected with a reason", "[agent]") {
    const std::string text =
        GENERATE(as<std::string>(), "not json", "[]", "{}", R"({"message": 3})", R"({"message": {}})",
                 R"({"message": {"message": null}})", R"({"message": "x")", "\xff\xfe", "null");
    CAPTURE(text);
    const auto parsed = parse_error_file(text);
    REQUIRE_FALSE(parsed.has_value());
    CHECK(parsed.error().code == Errc::kMalformed);
    CHECK_FALSE(parsed.error().message.empty());
}

TEST_CASE("another process can write an error file in memory through its path", "[agent]") {
    const ErrorFile file = ErrorFile::in_memory().value();
    CHECK(file.read().value().empty());
    std::ofstream(file.path()) << "first version, longer";
    std::ofstream(file.path()) << R"({"message": "x"})";
    CHECK(file.read().value() == R"({"message": "x"})");
}

TEST_CASE("an error file is never read beyond its limit", "[agent]") {
    const ErrorFile file = ErrorFile::in_memory().value();
    CHECK(file.empty());
    std::ofstream(file.path()) << std::string(kMaxErrorFileBytes, 'x');
    CHECK_FALSE(file.empty());
    CHECK(file.read().value().size() == kMaxErrorFileBytes);
    std::ofstream(file.path()) << std::string(kMaxErrorFileBytes + 1, 'x');
    CHECK(file.read().error().code == Errc::kLimit);
}
