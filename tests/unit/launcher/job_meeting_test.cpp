// The published address, and the password of etcd. tests/e2e/meeting_test.cpp runs whole jobs.

#include "launcher/job_meeting.hpp"

#include <cstdlib>
#include <filesystem>

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddprun;
using namespace ddprun::launcher;

namespace {

AddressHere always(std::optional<std::string> address) {
    return [address](const std::string&) { return address; };
}

std::string meeting_error(std::vector<std::string> words, const Environment& environment = {}) {
    words.insert(words.begin(), {"--rdzv-backend", "etcd", "--rdzv-id", "x"});
    words.push_back("program");
    const auto invocation = parse_options(words, {});
    REQUIRE(invocation.has_value());
    const auto made = JobMeeting::make(invocation->options, environment);
    return made ? "" : made.error().message;
}

}  // namespace

TEST_CASE("the published address is one that other nodes reach", "[launcher][unit]") {
    const ThisHost self{"n1", {"10.0.0.1", "10.9.0.1"}};
    CHECK(address_for_others("10.9.0.1", self, always("10.0.0.1")) == "10.9.0.1");
    CHECK(address_for_others("", self, always("10.9.0.1")) == "10.9.0.1");
    for (const char* only_here : {"127.0.0.1", "::1", "fe80::1%eth0", ""}) {
        CAPTURE(only_here);
        CHECK(address_for_others(only_here, self, always(std::nullopt)) == "10.0.0.1");
        CHECK(address_for_others(only_here, self, always("127.0.0.1")) == "10.0.0.1");
        CHECK(address_for_others(only_here, {"n1", {}}, always("127.0.0.1")) == "127.0.0.1");
    }
}

TEST_CASE("the password comes from the environment or a file", "[launcher][unit]") {
    const TemporaryDirectory temp;
    CHECK(meeting_error({}).empty());
    CHECK(meeting_error({"--rdzv-conf", "username=u"}) ==
          "--rdzv-conf username=u: the password is missing. Set DDPRUN_ETCD_PASSWORD, or write it into a file and pass "
          "password_file=FILE.");
    CHECK(meeting_error({"--rdzv-conf", "username=u"}, {{"DDPRUN_ETCD_PASSWORD", "secret"}}).empty());
    const std::string file = temp.file("password", "secret\n", 0600).string();
    CHECK(meeting_error({"--rdzv-conf", "username=u,password_file=" + file}).empty());
    CHECK(meeting_error({"--rdzv-conf", "username=u,password_file=" + file + "x"}) ==
          "--rdzv-conf password_file=" + file +
              "x: cannot read a password from the first line of this file. Check its name and permissions.");
}

TEST_CASE("the nodes of a starter that names no hosts meet in the home", "[launcher][unit]") {
    const TemporaryDirectory temp;
    Options options;
    options.allocation.emplace();
    options.allocation->name = "mpirun-1";
    options.nodes = {2, 2};
    CHECK(meets_in_home(options));
    CHECK(place(options, always(std::nullopt)).value().part == Placement::Part::kMeet);
    const auto failure = [&](const std::string& home) {
        const auto made = JobMeeting::make(options, {{"HOME", home}});
        return made ? "" : made.error().message;
    };
    CHECK(failure(temp.path().string()).empty());
    CHECK(std::filesystem::is_directory(temp.path() / ".ddprun" / "meeting"));
    CHECK(failure(temp.path().string()).empty());  // it is there
    CHECK_THAT(failure(""), Catch::Contains("HOME is not set") && Catch::Contains("Pass --rdzv-endpoint HOST:PORT"));
    CHECK_THAT(failure("/nowhere"), Catch::Contains("cannot make /nowhere/.ddprun, in which the nodes would meet") &&
                                        Catch::Contains("Pass --rdzv-endpoint HOST:PORT"));
    options.rdzv_dir = temp.path().string();
    CHECK_FALSE(meets_in_home(options));
}
