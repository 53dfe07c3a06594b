#include "launcher/meeting/find_daemon.hpp"

#include <sys/prctl.h>

#include <array>
#include <atomic>

#include "common/daemon_answer.hpp"
#include "launcher/host_daemon.hpp"
#include "launcher/meeting/reach.hpp"
#include "tests/catch.hpp"
#include "tests/unit/launcher/meeting/http_server.hpp"

namespace ddprun::launcher {
namespace {

using Catch::Contains;
using meeting_test::http_answer;
using meeting_test::HttpServer;

std::string answer_of_step(const std::string& lines) {
    return http_answer("426 Upgrade Required", std::string(kAboutDaemon) + lines);
}

/// Returns a port at which nothing listens.
std::uint16_t closed_port() {
    const HttpServer server([](const std::string&) { return std::string(); });
    return server.endpoint().port;
}

TEST_CASE("the daemon of a step is found behind ports of others", "[launcher]") {
    const HttpServer program([](const std::string&) { return http_answer("200 OK", "It serves slurm-71.0.\n"); });
    const HttpServer other([](const std::string&) { return answer_of_step("It serves slurm-70.0.\n"); });
    const HttpServer unnamed([](const std::string&) { return answer_of_step("Its job has all its nodes.\n"); });
    const HttpServer earlier(
        [](const std::string&) { return answer_of_step("Its job is ending.\nIt serves slurm-71.0.\n"); });
    const HttpServer wanted(
        [](const std::string&) { return answer_of_step("Its job has all its nodes.\nIt serves slurm-71.0.\n"); });
    const auto found = find_daemon({"127.0.0.1",
                                    {closed_port(), program.endpoint().port, other.endpoint().port,
                                     unnamed.endpoint().port, earlier.endpoint().port, wanted.endpoint().port},
                                    "slurm-71.0",
                                    "step 0 of SLURM job 71"},
                                   std::chrono::seconds(30), [](const std::string&) {});
    REQUIRE(found.has_value());
    CHECK(*found == wanted.endpoint());
}

TEST_CASE("a daemon of a step that is not found is an error with the reason", "[launcher]") {
    const HttpServer other([](const std::string&) { return answer_of_step("It serves slurm-70.0.\n"); });
    const auto search = [](std::uint16_t port) {
        return find_daemon({"127.0.0.1", {port}, "slurm-71.0", "step 0 of SLURM job 71"}, std::chrono::seconds(1),
                           [](const std::string&) {});
    };
    const auto elsewhere = search(other.endpoint().port);
    REQUIRE_FALSE(elsewhere.has_value());
    CHECK(elsewhere.error().code == Errc::kTimeout);
    CHECK_THAT(elsewhere.error().message,
               Contains("the rendezvous daemon of step 0 of SLURM job 71 was not found on 127.0.0.1 within 1 s") &&
                   Contains("only the daemon of another job (slurm-70.0) answers") && Contains("--rdzv-endpoint"));
    const HttpServer earlier(
        [](const std::string&) { return answer_of_step("Its job is ending.\nIt serves slurm-71.0.\n"); });
    CHECK_THAT(search(earlier.endpoint().port).error().message,
               Contains("only the daemon of an earlier ddprun of this step answers, and its job is ending"));
    const HttpServer stranger([](const std::string&) { return answer_of_step("It serves \x1b[2J\n.\n"); });
    CHECK_THAT(search(stranger.endpoint().port).error().message,
               Contains("another job (\\x1b[2J\\x0a) answers") && !Contains("\x1b"));
    const auto nothing = search(closed_port());
    REQUIRE_FALSE(nothing.has_value());
    CHECK_THAT(nothing.error().message, Contains("refused"));
}

TEST_CASE("a search that takes longer is reported with its reason", "[launcher]") {
    std::atomic<bool> reported = false;
    const HttpServer daemon([&reported](const std::string&) {
        return answer_of_step(reported ? "It serves slurm-71.0.\n" : "It serves slurm-70.0.\n");
    });
    std::vector<std::string> lines;
    const auto found = find_daemon({"127.0.0.1", {daemon.endpoint().port}, "slurm-71.0", "step 0 of SLURM job 71"},
                                   std::chrono::seconds(60), [&](const std::string& line) {
                                       lines.push_back(line);
                                       reported = true;
                                   });
    CHECK(found.has_value());
    REQUIRE_FALSE(lines.empty());
    CHECK_THAT(lines.front(), Contains("waiting for the rendezvous daemon of step 0 of SLURM job 71 on 127.0.0.1") &&
                                  Contains("only the daemon of another job (slurm-70.0) answers"));
}

TEST_CASE("a ddprun that comes back to its step joins the daemon that runs, and not one that is ending", "[launcher]") {
    const bool is_ending = GENERATE(false, true);
    const HttpServer daemon([is_ending](const std::string&) {
        return answer_of_step(std::string(is_ending ? kJobIsEnding : "") + "It serves slurm-71.0.\n");
    });
    DaemonRequest request;
    request.program = "/bin/false";
    request.bind.host = "127.0.0.1";
    request.step = "slurm-71.0";
    std::array<char, 16> own_name{};
    REQUIRE(::prctl(PR_GET_NAME, own_name.data()) == 0);
    REQUIRE(::prctl(PR_SET_NAME, "ddprund") == 0);  // only a ddprund is asked
    const auto hosted = host_or_join_step(request, {closed_port(), daemon.endpoint().port});
    REQUIRE(::prctl(PR_SET_NAME, own_name.data()) == 0);
    REQUIRE(hosted.has_value() == !is_ending);
    if (is_ending) {
        CHECK(hosted.error().code == Errc::kClosed);  // of the program that does not listen
    } else {
        CHECK_FALSE(hosted->started_here);
        CHECK(hosted->endpoint == daemon.endpoint());
    }
}

}  // namespace
}  // namespace ddprun::launcher
