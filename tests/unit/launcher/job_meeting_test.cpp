// The published address, and the password of etcd. tests/e2e/meeting_test.cpp runs whole jobs.

#include "launcher/job_meeting.hpp"

#include <cstdlib>

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
