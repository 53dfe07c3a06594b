// Lines that are printed late, or not at all. The output of a whole agent is tested in agent_text_test.cpp.
#include "agent/status_reporter.hpp"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <sstream>

#include "tests/catch.hpp"

using namespace ddprun::agent;

TEST_CASE("the reason of a stop is not printed when the node waits for the next group already", "[agent]") {
    std::ostringstream printed;
    const auto logger = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(printed)));
    boost::asio::io_context io;
    const AgentConfig config;
    Console console(io, STDOUT_FILENO, STDERR_FILENO);
    StatusReporter reporter(io, config, console);
    worker_group::Step stop;
    stop.reason = "stopping the workers: rank 0 exited with code 1";
    stop.outcome_follows = true;
    reporter.report_reason(stop);
    reporter.report_wait("rank 0 exited with code 1; a pause of 6.4 s");
    io.run();  // until each line is printed or dropped
    spdlog::set_default_logger(logger);
    CHECK_THAT(printed.str(), Catch::Contains("a pause of 6.4 s") && !Catch::Contains("stopping the workers"));
}
