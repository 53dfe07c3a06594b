#include "agent/workers/error_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

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

TEST_CASE("an error file on disk replaces an older one and is never read beyond its limit", "[agent]") {
    const TemporaryDirectory directory;
    const auto path = directory.path() / "error.json";
    std::ofstream(path) << "old";
    {
        const ErrorFile file = ErrorFile::at(path.string()).value();
        CHECK(file.read().value().empty());
        std::ofstream(path) << std::string(kMaxErrorFileBytes, 'x');
        CHECK(file.read().value().size() == kMaxErrorFileBytes);
        std::ofstream(path) << std::string(kMaxErrorFileBytes + 1, 'x');
        CHECK(file.read().error().code == Errc::kLimit);
    }
    CHECK(directory.names() == std::set<std::string>{"error.json"});
    { const ErrorFile unused = ErrorFile::at(path.string()).value(); }
    CHECK(directory.names().empty());
    CHECK_FALSE(ErrorFile::at("/nonexistent/folder/error.json").has_value());
}

TEST_CASE("an error file that its writer has put in place by a rename is read, but nothing else", "[agent]") {
    const TemporaryDirectory directory;
    const std::string path = directory.path() / "error.json";
    const ErrorFile file = ErrorFile::at(path).value();
    ::unlink(path.c_str());
    CHECK(file.empty());
    CHECK(file.read().value().empty());
    write_file(path + ".new", "text");
    REQUIRE(::rename((path + ".new").c_str(), path.c_str()) == 0);
    CHECK_FALSE(file.empty());
    CHECK(file.read().value() == "text");
    ::unlink(path.c_str());
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);  // reading it would wait for a writer
    CHECK(file.empty());
    CHECK(file.read().value().empty());
}
