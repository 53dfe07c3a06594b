#include "agent/job_error_file.hpp"

#include <boost/json.hpp>
#include <csignal>

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

protocol::FailureReport ended_with(ExitStatus status) {
    protocol::FailureReport culprit;
    culprit.pid = 4242;
    culprit.status = status;
    return culprit;
}

boost::json::value error_of(const protocol::FailureReport& culprit, std::string_view worker_text = "") {
    return boost::json::parse(job_error_text(culprit, worker_text, 1234s)).at("message");
}

constexpr ExitStatus kExit3{ExitStatus::Kind::kExited, 3};
constexpr ExitStatus kSegv{ExitStatus::Kind::kSignaled, SIGSEGV};

}  // namespace

TEST_CASE("the culprit's error file is passed on with its code, a signal as a negative number", "[agent]") {
    constexpr std::string_view text =
        R"({"message":{"message":"ValueError: x","extraInfo":{"py_callstack":"...","timestamp":"17"}}})";
    CHECK(
        job_error_text(ended_with(kExit3), text, 0s) ==
        R"({"message":{"message":"ValueError: x","extraInfo":{"py_callstack":"...","timestamp":"17"},"errorCode":3}})");
    CHECK(error_of(ended_with(kSegv), text).at("errorCode") == -11);
    // torchrun adds nothing to its second format.
    CHECK(job_error_text(ended_with(kExit3), R"({"message":"x","timestamp":17})", 0s) ==
          R"({"message":"x","timestamp":17})");
}

TEST_CASE("without a valid error file of the culprit the report has what is known about its end", "[agent]") {
    const std::string text = GENERATE(as<std::string>(), "", "{]", "[1]", R"({"message": 3})", "\xff");
    CAPTURE(text);
    const auto crash = error_of(ended_with(kSegv), text);
    CHECK(crash.at("message") == "Signal 11 (SIGSEGV) received by PID 4242");
    CHECK(crash.at("errorCode") == -11);
    CHECK(crash.at("extraInfo") == boost::json::value{{"timestamp", "1234"}});
    CHECK(error_of(ended_with(kExit3), text).at("message") == "exited with code 3");
}

TEST_CASE("a report made from a verdict has the message and the traceback that the verdict has", "[agent]") {
    auto culprit = ended_with({ExitStatus::Kind::kExited, 1});
    culprit.message = "ValueError: x";
    culprit.last_lines = {"step 1", "Traceback (most recent call last):", "  File \"t.py\"", "ValueError: x"};
    const auto error = error_of(culprit);
    CHECK(error.at("message") == "ValueError: x");
    CHECK(error.at("extraInfo").at("py_callstack") ==
          "Traceback (most recent call last):\n  File \"t.py\"\nValueError: x");
}
