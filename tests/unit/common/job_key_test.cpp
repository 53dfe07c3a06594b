// Where the job key comes from, the file that is made on first use, and every way in which one cannot be used.
#include "common/job_key.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddprun;

namespace {

const std::string kDigits = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";

bool is_counting(const JobKey& key) {
    for (std::size_t i = 0; i < JobKey::kBytes; ++i)
        if (key.bytes()[i] != i) return false;
    return true;
}

std::string message_of(const Environment& environment) {
    const auto key = JobKey::load(environment);
    if (key) throw std::runtime_error("a key where an error was expected");
    CHECK(key.error().code == Errc::kUsage);
    return key.error().message;
}

}  // namespace

TEST_CASE("the job key is that of the named file, else of the variable, else of the user's file", "[job_key][unit]") {
    const TemporaryDirectory home;
    const std::string named = home.file("named", kDigits + "\n", 0600);
    const std::string other(2 * JobKey::kBytes, 'f');
    Environment environment{{"HOME", home.path()}, {"DDPRUN_JOB_KEY", other}, {"DDPRUN_JOB_KEY_FILE", named}};
    const auto of_file = JobKey::load(environment).value();
    CHECK(is_counting(of_file));
    CHECK(of_file.origin() == named);
    environment["DDPRUN_JOB_KEY_FILE"] = "";
    const auto of_variable = JobKey::load(environment).value();
    CHECK(of_variable.bytes()[31] == 0xff);
    CHECK(of_variable.origin() == "DDPRUN_JOB_KEY");
    environment["DDPRUN_JOB_KEY"] = "";
    CHECK(JobKey::load(environment).value().origin() == home.path() / ".ddprun/job-key");
}

TEST_CASE("the user's job key is made on first use, and is the same from then on", "[job_key][unit]") {
    const TemporaryDirectory home;
    const Environment environment{{"HOME", home.path()}};
    std::vector<std::string> keys(8);
    {
        std::vector<std::jthread> nodes;
        for (std::string& key : keys) {
            nodes.emplace_back([&] {
                const auto bytes = JobKey::load(environment).value();
                key.assign(bytes.bytes().begin(), bytes.bytes().end());
            });
        }
    }
    CHECK(std::ranges::count(keys, keys.front()) == 8);
    CHECK(keys.front() != std::string(JobKey::kBytes, '\0'));
    struct stat status {};
    REQUIRE(::stat((home.path() / ".ddprun/job-key").c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0600);
    REQUIRE(::stat((home.path() / ".ddprun").c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0700);
    CHECK(std::distance(std::filesystem::directory_iterator(home.path() / ".ddprun"), {}) == 1);  // no draft is left
}

TEST_CASE("a program that only looks for the user's job key makes none", "[job_key][unit]") {
    const TemporaryDirectory home;
    const auto key = JobKey::load({{"HOME", home.path()}}, MissingKey::kFail);
    REQUIRE(key.has_error());
    CHECK_THAT(key.error().message, Catch::Contains("no such file") && Catch::Contains("Copy it from a node"));
    CHECK_FALSE(std::filesystem::exists(home.path() / ".ddprun"));
    const std::string with_slash = (home.path() / "absent/").string();
    const auto below = JobKey::load({{"HOME", with_slash}}, MissingKey::kFail);
    REQUIRE(below.has_error());
    CHECK_THAT(below.error().message, Catch::Contains(with_slash + ".ddprun/job-key"));
}

TEST_CASE("a drawn job key is random, and is read back from its text", "[job_key][unit]") {
    const std::string text = JobKey::draw().value().text();
    CHECK(text != JobKey::draw().value().text());
    CHECK(JobKey::load({{"DDPRUN_JOB_KEY", text}}).value().text() == text);
}

TEST_CASE("a file that others may have access to, or that is no key, is refused with what to do", "[job_key][unit]") {
    const TemporaryDirectory home;
    const auto refused = [&](const std::string& file) {
        return message_of({{"HOME", home.path()}, {"DDPRUN_JOB_KEY_FILE", file}});
    };
    const std::string shared = home.file("shared", kDigits, 0644);
    CHECK_THAT(refused(shared), Catch::Contains("mode 0644") && Catch::Contains("chmod 600 " + shared));
    CHECK_THAT(refused(home.file("group", kDigits, 0620)), Catch::Contains("mode 0620"));
    CHECK_THAT(refused(home.file("short", kDigits.substr(2), 0600)),
               Catch::Contains("64 hexadecimal digits") && Catch::Contains("openssl rand -hex 32"));
    CHECK_THAT(refused(home.file("long", kDigits + "00", 0600)), Catch::Contains("64 hexadecimal digits"));
    CHECK_THAT(refused(home.file("letters", std::string(64, 'g'), 0600)), Catch::Contains("64 hexadecimal digits"));
    CHECK_THAT(refused(home.file("empty", "", 0600)), Catch::Contains("64 hexadecimal digits"));
    CHECK_THAT(refused(home.path() / "none"),
               Catch::StartsWith("DDPRUN_JOB_KEY_FILE: ") && Catch::Contains("there is no such file"));
    CHECK_THAT(refused(home.path()), Catch::Contains("not a regular file"));
    REQUIRE(::mkfifo((home.path() / "fifo").c_str(), 0600) == 0);  // without a writer: it must not block
    CHECK_THAT(refused(home.path() / "fifo"), Catch::Contains("not a regular file"));
    if (::geteuid() == 0) {
        // A Kubernetes Secret: root's, and its group may read it.
        CHECK(JobKey::load({{"DDPRUN_JOB_KEY_FILE", home.file("secret", kDigits, 0440)}}).has_value());
        std::filesystem::create_directory(home.path() / ".ddprun");
        home.file(".ddprun/job-key", kDigits, 0440);
        CHECK_THAT(message_of({{"HOME", home.path()}}), Catch::Contains("mode 0440"));
        const std::string shared_with_group = home.file("of user", kDigits, 0640);
        REQUIRE(::chown(shared_with_group.c_str(), 12345, 0) == 0);
        CHECK_THAT(refused(shared_with_group), Catch::Contains("belongs to uid 12345"));
        const std::string foreign = home.file("foreign", kDigits, 0600);
        REQUIRE(::chown(foreign.c_str(), 12345, 0) == 0);
        CHECK_THAT(refused(foreign), Catch::Contains("belongs to uid 12345"));
    }
}

TEST_CASE("the user's file may not be a link, and its folder must be usable", "[job_key][unit]") {
    const TemporaryDirectory home;
    const Environment environment{{"HOME", home.path()}};
    std::filesystem::create_directory(home.path() / ".ddprun");
    std::filesystem::create_symlink(home.file("elsewhere", kDigits, 0600), home.path() / ".ddprun/job-key");
    CHECK_THAT(message_of(environment), Catch::Contains("symbolic link"));
    std::filesystem::remove_all(home.path() / ".ddprun");
    home.file(".ddprun", "", 0600);
    CHECK_THAT(message_of(environment), Catch::Contains(".ddprun/job-key") && Catch::Contains("Not a directory"));
    CHECK_THAT(message_of({{"HOME", "/proc/no-home"}}),
               Catch::Contains("cannot make the job key") && Catch::Contains("DDPRUN_JOB_KEY_FILE"));
    CHECK_THAT(message_of({}), Catch::Contains("HOME") && Catch::Contains("--insecure"));
}

TEST_CASE("a variable that is no key is refused without showing it", "[job_key][unit]") {
    const std::string secret = "correct horse battery staple";
    const std::string message = message_of({{"DDPRUN_JOB_KEY", secret}});
    CHECK_THAT(message, Catch::StartsWith("DDPRUN_JOB_KEY does not contain a key") && !Catch::Contains(secret));
}
