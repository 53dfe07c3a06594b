#include "launcher/host/temporary_log_dir.hpp"

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using ddprun::launcher::TemporaryLogDir;

TEST_CASE("a temporary folder for log files is removed after a success, and kept with its files else", "[launcher]") {
    const TemporaryDirectory parent;
    const bool success = GENERATE(false, true);
    auto made = TemporaryLogDir::make({{"TMPDIR", parent.path().string()}}).value();
    const std::filesystem::path path = made.path();
    CHECK(path.parent_path() == parent.path());
    CHECK(std::filesystem::status(path).permissions() == std::filesystem::perms(0700));
    std::filesystem::create_directories(path / "run/gen-1");
    write_file(path / "run/gen-1/rank-0.out", "text");
    CHECK(made.release(success) == !success);
    CHECK(std::filesystem::exists(path) == !success);
}

TEST_CASE("an empty temporary folder is removed however the job ended", "[launcher]") {
    const TemporaryDirectory parent;
    { const auto made = TemporaryLogDir::make({{"TMPDIR", parent.path().string()}}).value(); }
    CHECK(TemporaryLogDir::make({{"TMPDIR", parent.path().string()}}).value().release(false) == false);
    CHECK(parent.names().empty());
}

TEST_CASE("without a usable TMPDIR the folder is below /tmp", "[launcher]") {
    for (const ddprun::Environment& environment : {ddprun::Environment{}, ddprun::Environment{{"TMPDIR", ""}},
                                                   ddprun::Environment{{"TMPDIR", "/nonexistent"}}}) {
        const auto made = TemporaryLogDir::make(environment);
        REQUIRE(made.has_value());
        CHECK_THAT(made->path(), Catch::StartsWith("/tmp/ddprun-"));
    }
}
