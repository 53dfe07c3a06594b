// The value at a meeting point: one line of JSON.

#include "launcher/meeting/daemon_record.hpp"

#include "common/daemon_answer.hpp"
#include "launcher/meeting/reach.hpp"
#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::launcher;

TEST_CASE("a daemon's record survives the way through JSON", "[launcher][unit]") {
    for (const DaemonRecord& record :
         {DaemonRecord{{"10.0.0.1", 40001}, "n1", 71, "abc"}, DaemonRecord{{"fd00::1", 1}, "n\"1\n", 0, ""}}) {
        const std::string text = to_json(record);
        CAPTURE(text);
        CHECK(text.find('\n') == std::string::npos);
        CHECK(parse_daemon_record(text).value() == record);
    }
    CHECK(to_json({{"10.0.0.1", 40001}, "n1", 71, "abc"}) ==
          R"({"version":1,"address":"10.0.0.1:40001","host":"n1","pid":71,"claim":"abc"})");
}

TEST_CASE("a value of another kind or version is refused", "[launcher][unit]") {
    for (const char* text : {"", "x", "[]", "{}", R"({"version":"1"})", R"({"version":1,"address":7})",
                             R"({"version":1,"address":""})", R"({"version":1,"address":"n1"})",
                             R"({"version":1,"address":"n1:99999"})", R"({"version":0,"address":"n1:1"})"}) {
        CAPTURE(text);
        CHECK(parse_daemon_record(text).error().code == Errc::kMalformed);
    }
    CHECK(parse_daemon_record(R"({"version":2,"where":"n1:1"})").error().code == Errc::kMismatch);
    CHECK(parse_daemon_record("\x1b[2J").error().message == "'\\x1b[2J' is not the address of a daemon");
}

TEST_CASE("a daemon has ended when its port refuses or another program answers, not when it is silent",
          "[launcher][unit]") {
    const auto error = [](auto code) { return Result<HttpAnswer>(Error{code, "why"}); };
    const auto about_job = [](std::string_view line) {
        return reach_of(HttpAnswer{426, std::string(kAboutDaemon).append(line), ""});
    };
    CHECK(about_job("") == Reach::kAnswers);
    CHECK(about_job(kJobIsEnding) == Reach::kEnding);
    CHECK(about_job(kJobIsComplete) == Reach::kComplete);
    CHECK(reach_of(HttpAnswer{200, "<html>", ""}) == Reach::kEnded);
    CHECK(reach_of(error(Errc::kMalformed)) == Reach::kEnded);
    CHECK(reach_of(error(boost::system::errc::make_error_code(boost::system::errc::connection_refused))) ==
          Reach::kEnded);
    CHECK(reach_of(error(Errc::kTimeout)) == Reach::kSilent);
    CHECK(reach_of(error(Errc::kClosed)) == Reach::kSilent);
    CHECK(reach_of(error(Errc::kUnreachable)) == Reach::kSilent);
}
