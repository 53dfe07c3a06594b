#include "agent/output/result_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <future>

#include "common/system/unique_fd.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

ResultFile file_at(const std::string& path) { return {path, "the report " + path, "Name another file."}; }

}  // namespace

TEST_CASE("a result file replaces another one in one step, or is kept if another node wrote it", "[agent]") {
    const TemporaryDirectory directory;
    const std::string path = directory.path() / "error.json";
    REQUIRE(write_file(file_at(path), "first", Existing::kKeep).has_value());
    CHECK(read_file(path) == "first");
    REQUIRE(write_file(file_at(path), "second", Existing::kKeep).has_value());
    CHECK(read_file(path) == "first");
    REQUIRE(write_file(file_at(path), "third", Existing::kReplace).has_value());
    CHECK(read_file(path) == "third");
    CHECK(directory.names() == std::set<std::string>{"error.json"});
    REQUIRE(clear_file(file_at(path)).has_value());
    CHECK(directory.names().empty());
    CHECK(clear_file(file_at(path)).has_value());
}

TEST_CASE("a result file that is no regular file is written in place, and never removed", "[agent]") {
    const TemporaryDirectory directory;
    const std::string link = directory.path() / "link";
    const std::string target = directory.path() / "target";
    write_file(target, "old");
    REQUIRE(::symlink(target.c_str(), link.c_str()) == 0);
    CHECK(clear_file(file_at(link)).has_value());
    CHECK(read_file(target).empty());
    CHECK(write_file(file_at(link), "new", Existing::kReplace).has_value());
    CHECK(read_file(target) == "new");
    CHECK(std::filesystem::is_symlink(link));
    for (const Existing existing : {Existing::kKeep, Existing::kReplace})
        CHECK(write_file(file_at("/dev/null"), "text", existing).has_value());
    CHECK(clear_file(file_at("/dev/null")).has_value());
    CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("a result file that cannot be written is an error with its name and what to do", "[agent]") {
    const TemporaryDirectory directory;
    for (const std::string& path : {std::string("/nonexistent/folder/error.json"), directory.path().string()}) {
        const auto written = write_file(file_at(path), "text", Existing::kReplace);
        REQUIRE_FALSE(written.has_value());
        CHECK_THAT(written.error().message, Catch::Contains(path) && Catch::Contains("cannot write the report") &&
                                                Catch::Contains("Name another file."));
    }
    CHECK(directory.names().empty());
}

TEST_CASE("a file of an earlier attempt that cannot be removed is an error with its name and what to do", "[agent]") {
    const UniqueFd sealed(::memfd_create("result", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::write(sealed.get(), "old", 3) == 3);
    REQUIRE(::fcntl(sealed.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    const std::string path = "/proc/self/fd/" + std::to_string(sealed.get());
    const Result<void> cleared = clear_file(file_at(path));
    REQUIRE_FALSE(cleared.has_value());
    CHECK(cleared.error().message ==
          "cannot remove the report " + path + " of an earlier attempt: Operation not permitted. Name another file.");
}

TEST_CASE("a file is checked before the job without leaving anything behind", "[agent]") {
    const TemporaryDirectory directory;
    const std::string path = directory.path() / "report.json";
    CHECK(check_writable(file_at(path)).has_value());
    CHECK(directory.names().empty());
    write_file(path, "old");
    CHECK(check_writable(file_at(path)).has_value());
    CHECK(read_file(path) == "old");
    CHECK(check_writable(file_at("/dev/null")).has_value());
    for (const std::string& wrong : {std::string("/nonexistent/report.json"), directory.path().string()}) {
        const auto checked = check_writable(file_at(wrong));
        REQUIRE_FALSE(checked.has_value());
        CHECK_THAT(checked.error().message, Catch::Contains("cannot write the report " + wrong));
    }
}

TEST_CASE("a file system that hangs holds up the end until the deadline, and no other file", "[agent]") {
    const TemporaryDirectory directory;
    const std::string path = directory.path() / "report.json";
    std::promise<void> server_is_back;
    const std::shared_future<void> back = server_is_back.get_future().share();
    ResultWrites writes;
    writes.start("the report /stuck", [back]() -> Result<void> {
        back.wait();
        return {};
    });
    writes.start(file_at(path), "text", Existing::kReplace);
    writes.start(file_at("/nonexistent/report"), "text", Existing::kReplace);
    writes.start(file_at(""), "text", Existing::kReplace);
    const auto problems = writes.finish(Clock::now() + 500ms);
    server_is_back.set_value();
    REQUIRE(problems.size() == 2);
    CHECK_THAT(problems[0], Catch::Contains("the report /stuck was not written within 8 s"));
    CHECK_THAT(problems[1], Catch::Contains("cannot write the report /nonexistent/report"));
    CHECK(read_file(path) == "text");
    CHECK(writes.finish(Clock::now()).empty());
}
