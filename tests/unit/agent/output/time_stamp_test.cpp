#include "agent/output/time_stamp.hpp"

#include <cstdlib>
#include <optional>

#include "tests/catch.hpp"

using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

/// Sets the time zone of this process as long as it lives.
class TimeZone {
public:
    explicit TimeZone(const char* name) {
        if (const char* before = std::getenv("TZ")) before_ = before;
        ::setenv("TZ", name, 1);
        ::tzset();
    }
    ~TimeZone() {
        before_ ? ::setenv("TZ", before_->c_str(), 1) : ::unsetenv("TZ");
        ::tzset();
    }
    TimeZone(const TimeZone&) = delete;
    TimeZone& operator=(const TimeZone&) = delete;

private:
    std::optional<std::string> before_;
};

constexpr std::chrono::system_clock::time_point kNoon{1'772'366'403'042ms};  // 2026-03-01 12:00:03.042 UTC

}  // namespace

TEST_CASE("a time stamp is local time with milliseconds and the distance to UTC", "[agent]") {
    TimeStamp stamp;
    const TimeZone utc("UTC0");
    CHECK(stamp.at(kNoon) == "2026-03-01T12:00:03.042+00:00 ");
    CHECK(stamp.at(kNoon + 7ms) == "2026-03-01T12:00:03.049+00:00 ");
    CHECK(stamp.at(kNoon + 958ms) == "2026-03-01T12:00:04.000+00:00 ");
    CHECK(stamp.at(kNoon - 24h) == "2026-02-28T12:00:03.042+00:00 ");
}

TEST_CASE("a time stamp names time zones east and west of UTC", "[agent]") {
    const TimeZone east("IST-5:30");
    CHECK(TimeStamp().at(kNoon) == "2026-03-01T17:30:03.042+05:30 ");
    const TimeZone west("NST3:30");
    CHECK(TimeStamp().at(kNoon) == "2026-03-01T08:30:03.042-03:30 ");
}

TEST_CASE("each line of a stream is stamped once, however its bytes arrive", "[agent]") {
    LineStamper lines;
    CHECK(lines.stamped("one\ntw", "1 ") == "1 one\n1 tw");
    CHECK(lines.stamped("o\n", "2 ") == "o\n");
    CHECK(lines.stamped("", "3 ") == "");
    CHECK(lines.stamped("\n\r10%\r20%", "4 ") == "4 \n4 \r10%\r20%");
    CHECK(lines.stamped("\r\nend\n", "5 ") == "\r\n5 end\n");
}
