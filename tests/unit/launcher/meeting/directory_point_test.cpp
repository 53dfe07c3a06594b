// A meeting point in a directory: what its files mean, and claims at one time.

#include "launcher/meeting/directory_point.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "common/system/within.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddprun;
using namespace ddprun::launcher;
using namespace std::chrono_literals;
using Names = std::set<std::string>;

namespace {

const std::string kJob = "ddprun/x";

DirectoryPoint point_in(const TemporaryDirectory& temp) { return {temp.path(), 10s}; }

}  // namespace

TEST_CASE("a claim makes one file that only its owner can read", "[launcher][unit]") {
    const TemporaryDirectory temp;
    DirectoryPoint point = point_in(temp);
    CHECK(point.read(kJob).value() == std::nullopt);
    const Claim claim = point.claim(kJob, "first", std::nullopt).value();
    CHECK(claim.mine);
    CHECK(claim.there == Published{"first", 1});
    CHECK(point.read(kJob).value() == claim.there);
    CHECK(temp.names() == Names{"ddprun-x.1"});
    CHECK(read_file(temp.path() / "ddprun-x.1") == "first\n");
    struct stat status {};
    REQUIRE(::stat((temp.path() / "ddprun-x.1").c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);

    const Claim second = point.claim(kJob, "second", std::nullopt).value();
    CHECK_FALSE(second.mine);
    CHECK(second.there == claim.there);
    CHECK(point.read("ddprun/x.1").value() == std::nullopt);  // another name, whose files begin alike
}

TEST_CASE("only the version that was read is replaced", "[launcher][unit]") {
    const TemporaryDirectory temp;
    DirectoryPoint point = point_in(temp);
    const auto first = point.claim(kJob, "first", std::nullopt).value().there;
    const Claim second = point.claim(kJob, "second", first).value();
    CHECK(second.mine);
    CHECK(temp.names() == Names{"ddprun-x.2"});
    const Claim late = point.claim(kJob, "late", first).value();
    CHECK_FALSE(late.mine);
    CHECK(late.there == second.there);
    CHECK(temp.names() == Names{"ddprun-x.2"});
}

TEST_CASE("a withdrawn value leaves an empty file, so that its version is not used again", "[launcher][unit]") {
    const TemporaryDirectory temp;
    DirectoryPoint point = point_in(temp);
    const auto first = point.claim(kJob, "first", std::nullopt).value().there;
    REQUIRE(point.withdraw(kJob, *first).has_value());
    CHECK(temp.names() == Names{"ddprun-x.2"});
    CHECK(point.read(kJob).value() == std::nullopt);

    const Claim late = point.claim(kJob, "late", first).value();  // it still wants to replace the first
    CHECK_FALSE(late.mine);
    CHECK(late.there == std::nullopt);

    const Claim next = point.claim(kJob, "next", std::nullopt).value();
    CHECK(next.there == Published{"next", 3});
    REQUIRE(point.withdraw(kJob, *first).has_value());  // not its own any more
    CHECK(point.read(kJob).value() == next.there);
    CHECK(temp.names() == Names{"ddprun-x.3"});
}

TEST_CASE("a withdrawn value of a name that is used once leaves nothing", "[launcher][unit]") {
    const TemporaryDirectory temp;
    DirectoryPoint point(temp.path(), std::chrono::seconds(10), DirectoryPoint::Names::kUsedOnce);
    const auto mine = point.claim(kJob, "mine", std::nullopt).value().there;
    REQUIRE(point.withdraw(kJob, *mine).has_value());
    CHECK(temp.names() == Names{});
    CHECK(point.withdraw(kJob, *mine).has_value());  // removed already
}

TEST_CASE("a low version that a slow agent links counts for nothing", "[launcher][unit]") {
    const TemporaryDirectory temp;
    DirectoryPoint point = point_in(temp);
    const auto first = point.claim(kJob, "first", std::nullopt).value().there;
    const auto second = point.claim(kJob, "second", first).value().there;
    const auto third = point.claim(kJob, "third", second).value().there;
    temp.file("ddprun-x.2", "late\n", 0600);  // linked after its check, before it looks again
    CHECK(point.read(kJob).value() == third);
    CHECK_FALSE(point.claim(kJob, "other", std::nullopt).value().mine);
}

TEST_CASE("of many claims at one time exactly one wins, and all others see its value", "[launcher][unit][threads]") {
    constexpr int kAgents = 8;
    const TemporaryDirectory temp;
    std::optional<Published> expected;  // free, then stale, then withdrawn
    for (int round = 0; round < 20; ++round) {
        CAPTURE(round);
        std::vector<Result<Claim>> claims(kAgents, Error{});
        std::barrier start(kAgents);
        {
            std::vector<std::jthread> agents;
            for (int i = 0; i < kAgents; ++i) {
                agents.emplace_back([&, i] {
                    DirectoryPoint point = point_in(temp);
                    start.arrive_and_wait();
                    claims[i] = point.claim(kJob, "agent " + std::to_string(i), expected);
                });
            }
        }
        const auto there = point_in(temp).read(kJob).value();
        int winners = 0;
        for (const Result<Claim>& claim : claims) {
            INFO((claim ? "" : claim.error().message));
            REQUIRE(claim.has_value());
            winners += claim->mine ? 1 : 0;
            CHECK(claim->there == there);
        }
        CHECK(winners == 1);
        CHECK(temp.names().size() == 1);
        REQUIRE(there.has_value());
        expected = there;
        if (round % 3 == 2) {
            REQUIRE(point_in(temp).withdraw(kJob, *there).has_value());
            expected.reset();
        }
    }
}

TEST_CASE("a directory that cannot be used is an error that names it", "[launcher][unit]") {
    const TemporaryDirectory temp;
    DirectoryPoint absent(temp.path() / "absent", 10s);
    const Error error = absent.read(kJob).error();
    CHECK(error.code == Errc::kUsage);
    CHECK_THAT(error.message, Catch::StartsWith("cannot meet in --rdzv-dir " + (temp.path() / "absent").string() +
                                                ": No such file or directory. Make a directory"));
    DirectoryPoint file(temp.file("file", "", 0600), 10s);
    CHECK(file.read(kJob).error().code == Errc::kUsage);
    CHECK_THAT(file.read(kJob).error().message, Catch::Contains("Not a directory. Make a directory"));
    const auto later = temp.path() / "later";  // an automount that goes away
    DirectoryPoint vanished(later, 10s);
    std::filesystem::create_directory(later);
    REQUIRE(vanished.read(kJob).has_value());
    std::filesystem::remove(later);
    CHECK(vanished.read(kJob).error().code != Errc::kUsage);
    CHECK_THAT(vanished.read(kJob).error().message,
               Catch::EndsWith("It was there before: check the file system that has it."));
    CHECK(vanished.claim(kJob, "v", std::nullopt).error().code != Errc::kUsage);
    if (::geteuid() != 0) {
        REQUIRE(::chmod(temp.path().c_str(), 0500) == 0);
        CHECK_THAT(point_in(temp).claim(kJob, "v", std::nullopt).error().message,
                   Catch::Contains("Permission denied. Pass a --rdzv-dir in which this user may read and write."));
        REQUIRE(::chmod(temp.path().c_str(), 0700) == 0);
    }
    CHECK(point_in(temp).claim("ddprun/" + std::string(1024, 'x'), "v", std::nullopt).has_value());
}

TEST_CASE("a file system without hard links is an error with what to do instead", "[launcher][unit]") {
    for (const int number : {EPERM, EOPNOTSUPP, ENOSYS}) {
        CHECK_THAT(link_error("/d", number).message,
                   Catch::Contains("this file system has none") && Catch::Contains("--rdzv-endpoint"));
    }
    CHECK_THAT(link_error("/d", ENOSPC).message,
               Catch::StartsWith("cannot make a hard link in --rdzv-dir /d: No space"));
}

TEST_CASE("messages about a directory that the user has not passed name no option of it", "[launcher][unit]") {
    const TemporaryDirectory temp;
    const auto point = [](const std::filesystem::path& path) {
        return DirectoryPoint(path, 10s, DirectoryPoint::Names::kUsedOnce, "--rdzv-endpoint HOST:PORT");
    };
    const auto absent = temp.path() / "absent";
    DirectoryPoint in_absent = point(absent);
    CHECK(in_absent.read(kJob).error().message ==
          "cannot meet in " + absent.string() + ": No such file or directory. Pass --rdzv-endpoint HOST:PORT.");
    CHECK(in_absent.elsewhere() == "--rdzv-endpoint HOST:PORT");
    CHECK(point_in(temp).elsewhere() == "another --rdzv-id");
    REQUIRE(::symlink("elsewhere", (temp.path() / "ddprun-x.1").c_str()) == 0);
    DirectoryPoint with_link = point(temp.path());
    CHECK_THAT(with_link.read(kJob).error().message,
               Catch::EndsWith("so its address is not trusted. Pass --rdzv-endpoint HOST:PORT."));
    for (const int number : {EPERM, ENOSPC}) {
        const std::string message = link_error("/d", number, "--rdzv-endpoint HOST:PORT").message;
        CHECK_THAT(message, Catch::StartsWith("cannot make a hard link in /d: ") &&
                                Catch::EndsWith(" Pass --rdzv-endpoint HOST:PORT."));
    }
}

TEST_CASE("an address that another user has published is not trusted", "[launcher][unit]") {
    const TemporaryDirectory temp;
    const auto path = temp.file("ddprun-x.1", "value\n", 0644);
    CHECK(point_in(temp).read(kJob).value()->value == "value");
    if (::chown(path.c_str(), 4242, 4242) != 0) {
        WARN("SKIPPED: this user cannot make another user's file");
        return;
    }
    CHECK_THAT(point_in(temp).read(kJob).error().message,
               Catch::Contains("ddprun-x.1 belongs to another user, so its"));
    CHECK(std::distance(std::filesystem::directory_iterator(temp.path()), {}) == 1);  // no trial file is left
}

TEST_CASE("a link in place of a file is not trusted", "[launcher][unit]") {
    const TemporaryDirectory temp;
    temp.file("elsewhere", "value\n", 0600);
    REQUIRE(::symlink("elsewhere", (temp.path() / "ddprun-x.1").c_str()) == 0);
    const auto read = point_in(temp).read(kJob);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().code == Errc::kRefused);
    CHECK_THAT(read.error().message, Catch::Contains("is not trusted"));
}

TEST_CASE("names become file names that stay apart", "[launcher][unit]") {
    CHECK(as_entry_name("ddprun/x-1_2.b") == "ddprun-x-1_2%2Eb");
    CHECK(as_entry_name("ddprun/a/b c%") == "ddprun-a%2Fb%20c%25");
    CHECK(as_entry_name("ddprun/\xC3\xA4") == "ddprun-%C3%A4");
    const std::string long_id(1024, '/');
    CHECK(as_entry_name("ddprun/" + long_id).size() < 200);
    CHECK(as_entry_name("ddprun/" + long_id) != as_entry_name("ddprun/" + long_id + "/"));
}

TEST_CASE("a call that hangs is left behind", "[launcher][unit][threads]") {
    const auto release = std::make_shared<std::atomic<bool>>(false);
    const auto ended = std::make_shared<std::atomic<bool>>(false);
    CHECK(within(20ms, [release, ended] {
              release->wait(false);
              *ended = true;
              ended->notify_one();
              return 7;
          }) == std::nullopt);
    *release = true;
    release->notify_one();
    ended->wait(false);
    CHECK(within(10s, [] { return 7; }) == 7);
}
