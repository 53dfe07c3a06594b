#include "agent/output/rotating_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "agent/output/line_buffer.hpp"
#include "agent/output/log_files.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddprun;
using namespace ddprun::agent;

namespace {

/// A rotating file "log" in a folder of its own.
struct RotationRig {
    TemporaryDirectory directory;
    std::string path = (directory.path() / "log").string();
    RotatingFile file;

    explicit RotationRig(Rotation rotation) : file(open_log_file(path).value(), path, rotation) {}
    void write(std::string_view bytes) { CHECK(file.write(bytes) == bytes.size()); }
    /// Returns the contents of log, log.1, … up to the first that does not exist, joined by "|".
    [[nodiscard]] std::string contents() const {
        std::string text = read_file(path);
        for (int i = 1; std::filesystem::exists(fmt::format("{}.{}", path, i)); ++i)
            text += "|" + read_file(fmt::format("{}.{}", path, i));
        return text;
    }
};

}  // namespace

TEST_CASE("as many whole lines as fit belong into a file", "[agent]") {
    CHECK(bytes_before_rotation("one\ntwo\n", 0, 8, 0) == 8);
    CHECK(bytes_before_rotation("one\ntwo\n", 0, 7, 0) == 4);
    CHECK(bytes_before_rotation("one\ntwo\n", 5, 8, 0) == 0);
    CHECK(bytes_before_rotation("one\ntwo\n", 4, 8, 0) == 4);
    CHECK(bytes_before_rotation("one\ntwo\n", 8, 8, 0) == 0);
}

TEST_CASE("a line stays in one file, even if it is longer than a file", "[agent]") {
    CHECK(bytes_before_rotation("one line\nx\n", 0, 4, 0) == 9);
    CHECK(bytes_before_rotation("one line", 0, 4, 0) == 8);
    CHECK(bytes_before_rotation(" goes on\nx\n", 20, 4, 5) == 9);
    CHECK(bytes_before_rotation(" goes on", 20, 4, 5) == 8);
}

TEST_CASE("full files are numbered from the newest, and the oldest is removed", "[agent]") {
    RotationRig rig({8, 2});
    rig.write("1\n2\n3\n4\n");
    CHECK(rig.contents() == "1\n2\n3\n4\n");
    rig.write("5\n6");
    CHECK(rig.contents() == "5\n6|1\n2\n3\n4\n");
    rig.write("66666666666\n7\n8\n");
    CHECK(rig.contents() == "7\n8\n|5\n666666666666\n|1\n2\n3\n4\n");
    rig.write("9\n10\n11\n");
    CHECK(rig.contents() == "10\n11\n|7\n8\n9\n|5\n666666666666\n");
    CHECK(rig.file.take_problem().has_value());
    CHECK(rig.file.close() == 0);
}

TEST_CASE("if no rotated file is wanted the file is emptied, and stays the one that readers have open", "[agent]") {
    RotationRig rig({4, 0});
    struct stat before {};
    struct stat after {};
    REQUIRE(::stat(rig.path.c_str(), &before) == 0);
    rig.write("1\n2\n3\n");
    REQUIRE(::stat(rig.path.c_str(), &after) == 0);
    CHECK(rig.contents() == "3\n");
    CHECK(after.st_ino == before.st_ino);
}

TEST_CASE("output without line ends is rotated all the same", "[agent]") {
    RotationRig rig({1024, 1});
    for (int i = 0; i < 300; ++i) rig.write(std::string(1000, '.'));
    CHECK(std::filesystem::file_size(rig.path) <= kMaxLineBytes);
    CHECK(std::filesystem::file_size(rig.path + ".1") == kMaxLineBytes);
}

TEST_CASE("a file of an earlier run counts", "[agent]") {
    RotationRig rig({0, 1});
    rig.write("1\n2\n3\n");
    rig.file = RotatingFile(open_log_file(rig.path).value(), rig.path, {6, 1});
    rig.write("4\n");
    CHECK(rig.contents() == "4\n|1\n2\n3\n");
}

TEST_CASE("a file that another program has renamed or removed is followed by a new one", "[agent]") {
    RotationRig rig({4, 1});
    rig.write("1\n2\n");
    REQUIRE(std::filesystem::remove(rig.path));
    rig.write("3\n");
    CHECK(rig.contents() == "3\n");
    CHECK(rig.file.take_problem().has_value());
}

TEST_CASE("a file that cannot be rotated loses nothing, and reports that once", "[agent]") {
    RotationRig rig({4, 1});
    std::filesystem::create_directory(rig.path + ".1");  // a file cannot replace it
    rig.write("1\n2\n3\n4\n5\n");
    CHECK(read_file(rig.path) == "1\n2\n3\n4\n5\n");
    const Result<void> problem = rig.file.take_problem();
    REQUIRE_FALSE(problem.has_value());
    CHECK_THAT(problem.error().message,
               Catch::StartsWith(fmt::format("cannot rename {0} to {0}.1: ", rig.path)) &&
                   Catch::EndsWith(fmt::format(
                       "; {0} now grows without limit. Remove {0}.1, or make its folder writable.", rig.path)));
    CHECK(rig.file.take_problem().has_value());
}
