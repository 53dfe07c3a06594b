// Lines that are printed late, or not at all. The output of a whole agent is tested in agent_text_test.cpp.
#include "agent/status_reporter.hpp"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <sstream>
#include <string>

#include "tests/catch.hpp"

using namespace ddprun::agent;

namespace {

/// Returns what a reporter prints until each line that `report` causes was printed or dropped.
template <typename Report>
std::string printed_by(const Report& report, const AgentConfig& config = {}) {
    std::ostringstream printed;
    const auto logger = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(printed)));
    boost::asio::io_context io;
    Console console(io, STDOUT_FILENO, STDERR_FILENO);
    StatusReporter reporter(io, config, console);
    report(reporter);
    io.run();
    spdlog::set_default_logger(logger);
    return printed.str();
}

worker_group::Step stop_because(const std::string& reason) {
    worker_group::Step stop;
    stop.reason = reason;
    stop.outcome_follows = true;
    return stop;
}

}  // namespace

TEST_CASE("the reason of a stop is not printed when the node waits for the next group already", "[agent]") {
    const std::string printed = printed_by([](StatusReporter& reporter) {
        reporter.report_reason(stop_because("stopping the workers: rank 0 exited with code 1"));
        reporter.report_wait("rank 0 exited with code 1; a pause of 6.4 s");
    });
    CHECK_THAT(printed, Catch::Contains("a pause of 6.4 s") && !Catch::Contains("stopping the workers"));
}

TEST_CASE("a line that is printed late has the time that is left then", "[agent]") {
    const auto before = ddprun::Clock::now();
    const std::string printed = printed_by([&](StatusReporter& reporter) {
        worker_group::Step step = stop_because("the workers wait");
        step.reason_until = before + std::chrono::seconds(27);
        reporter.report_reason(step);
    });
    const std::string::size_type at = printed.find("the workers wait, for ");
    INFO(printed);
    REQUIRE(at != std::string::npos);
    CHECK_THAT(printed, Catch::Contains(" s at most"));
    CHECK(std::stod(printed.substr(at + std::string("the workers wait, for ").size())) <= 25.1);
}

TEST_CASE("a line that is printed after its time shows that none is left", "[agent]") {
    const std::string printed = printed_by([&](StatusReporter& reporter) {
        worker_group::Step step = stop_because("the workers wait");
        step.reason_until = ddprun::Clock::now();
        reporter.report_reason(step);
    });
    CHECK_THAT(printed, Catch::Contains("the workers wait, for 0.0 s at most"));
}

TEST_CASE("a wait at an endpoint is that of nodes apart only if each of several hosts may have its own", "[agent]") {
    AgentConfig config;
    config.endpoint = {"127.0.0.1", 29400};
    config.max_nodes = 2;
    bool has_run = false;
    const std::string other = GENERATE(as<std::string>(), "", "endpoint", "one node", "emulated", "has run");
    CAPTURE(other);
    if (other == "endpoint") config.endpoint.host = "n1";
    if (other == "one node") config.max_nodes = 1;
    if (other == "emulated") config.emulated = true;
    if (other == "has run") has_run = true;
    const std::string printed = printed_by(
        [&](StatusReporter& reporter) {
            ddprun::protocol::Assignment assignment;
            assignment.node_count = 2;
            if (has_run) reporter.report_start(assignment);
            reporter.report_wait("1 of 2 nodes is here", true);
        },
        config);
    CHECK_THAT(printed, Catch::Contains("1 of 2 nodes is here"));
    CHECK((printed.find("a loopback address is another host on each node") != std::string::npos) == other.empty());
}

TEST_CASE("a node that waits alone reports the likely reason that its launcher knows, and adds it to the verdict",
          "[agent]") {
    AgentConfig config;
    config.endpoint = {"n1", 29400};
    config.max_nodes = 2;
    config.apart_hint = "each host may have a home of its own";
    const bool is_alone = GENERATE(true, false);
    ddprun::protocol::Verdict verdict;
    verdict.outcome = ddprun::protocol::Outcome::kInfrastructure;
    const std::string printed = printed_by(
        [&](StatusReporter& reporter) {
            reporter.report_wait("nodes are missing", is_alone);
            reporter.add_hint(verdict);
        },
        config);
    CHECK((printed.find("nodes are missing; each host may have a home of its own") != std::string::npos) == is_alone);
    CHECK(verdict.hint == (is_alone ? "Each host may have a home of its own" : ""));
}
