// ddprund from outside: the line that reports that it is ready, exit codes, the log file.
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <boost/json.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>

#include "common/exit_codes.hpp"
#include "common/ids.hpp"
#include "common/system/unique_fd.hpp"
#include "rendezvous/daemon/program.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/daemon/daemon_fixture.hpp"

using namespace ddprun;
using namespace ddprun::test;

namespace {

struct Pipe {
    Pipe() {
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw ErrorException(system_error("pipe2", errno));
        read.reset(ends[0]);
        write.reset(ends[1]);
    }
    UniqueFd read;
    UniqueFd write;
};

/// Returns everything until the writer closes.
std::string read_to_end(const UniqueFd& fd) {
    std::string text;
    std::array<char, 256> bytes{};
    for (ssize_t n = 0; (n = ::read(fd.get(), bytes.data(), bytes.size())) > 0;)
        text.append(bytes.data(), static_cast<std::size_t>(n));
    return text;
}

/// A file that does not exist before and after the test.
struct TemporaryFile {
    std::filesystem::path path = std::filesystem::temp_directory_path() / ("ddprun-test-" + random_id());
    ~TemporaryFile() { std::filesystem::remove(path); }
};

/// The program adds its log file to the default logger, which other tests share.
struct RestoredLogger {
    std::vector<spdlog::sink_ptr> sinks = spdlog::default_logger()->sinks();
    ~RestoredLogger() { spdlog::default_logger()->sinks() = sinks; }
};

}  // namespace

TEST_CASE("ddprund reports where it listens, logs to its file, and ends on a signal", "[daemon][unit]") {
    const int signal = GENERATE(SIGTERM, SIGHUP, SIGQUIT);
    std::signal(SIGHUP, SIG_DFL);  // nohup
    const RestoredLogger restored;
    const TemporaryFile log;
    Pipe pipe;
    daemon::Options options;
    options.daemon = quick_config();
    options.daemon.job.run_id = "a \"quoted\" name";
    options.ready_fd = pipe.write.release();
    options.log_file = log.path;
    auto exit_code = std::async(std::launch::async, [&] { return daemon::run_program(options); });

    const std::string line = read_to_end(pipe.read);
    CHECK(line.ends_with("}\n"));
    const boost::json::object ready = boost::json::parse(line).as_object();
    CHECK(ready.at("address") == "127.0.0.1");
    CHECK(ready.at("run_id") == "a \"quoted\" name");
    asio::io_context io(1);
    const auto knock = [&]() -> awaitable<void> {
        const Endpoint endpoint{"127.0.0.1", static_cast<std::uint16_t>(ready.at("port").as_int64())};
        const auto client = co_await client::ControlClient::connect(endpoint, in(5s));
        CHECK(client.has_value());
    };
    CHECK(run(io, knock()));

    ::kill(::getpid(), signal);
    REQUIRE(exit_code.wait_for(20s) == std::future_status::ready);
    CHECK(exit_code.get() == exit_code::kSignalBase + signal);
    std::ifstream file(log.path);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    CHECK_THAT(text, Catch::Contains("serves run") && Catch::Contains("stopped by " + signal_name(signal)));
}

TEST_CASE("ddprund warns that others can reach it when the first agent joins", "[daemon][unit]") {
    const RestoredLogger restored;
    const TemporaryFile log;
    Pipe pipe;
    daemon::Options options;
    options.daemon = quick_config();
    options.daemon.bind = asio::ip::address_v4::any();
    options.insecure = true;
    options.ready_fd = pipe.write.release();
    options.log_file = log.path;
    auto exit_code = std::async(std::launch::async, [&] { return daemon::run_program(options); });
    const boost::json::object ready = boost::json::parse(read_to_end(pipe.read)).as_object();
    const auto logged = [&] {
        std::ifstream file(log.path);
        return std::string(std::istreambuf_iterator<char>(file), {});
    };
    CHECK_THAT(logged(), Catch::Contains("serves run") && !Catch::Contains("INSECURE"));
    asio::io_context io(1);
    const auto join = [&]() -> awaitable<void> {
        const Endpoint endpoint{"127.0.0.1", static_cast<std::uint16_t>(ready.at("port").as_int64())};
        const auto agent = std::make_shared<FakeAgent>(io, endpoint, join_as("n1"));
        co_await agent->join();
        const bool warned =
            co_await eventually([&] { return logged().find("INSECURE: 0.0.0.0:") != std::string::npos; });
        CHECK(warned);
    };
    CHECK(run(io, join()));
    ::kill(::getpid(), SIGTERM);
    REQUIRE(exit_code.wait_for(20s) == std::future_status::ready);
}

TEST_CASE("ddprund that cannot listen writes nothing to --ready-fd and ends with the code for infrastructure",
          "[daemon][unit]") {
    const DaemonFixture other;
    Pipe pipe;
    daemon::Options options;
    options.daemon = quick_config();
    options.daemon.port = other.endpoint().port;
    options.ready_fd = pipe.write.release();
    CHECK(daemon::run_program(options) == exit_code::kInfrastructure);
    CHECK(read_to_end(pipe.read).empty());
}

TEST_CASE("ddprund that stands by listens when the port is free", "[daemon][unit]") {
    const RestoredLogger restored;
    std::optional<DaemonFixture> other(std::in_place);
    Pipe ready;
    Pipe starter;
    daemon::Options options;
    options.daemon = quick_config();
    options.daemon.port = other->endpoint().port;
    options.ready_fd = ready.write.release();
    options.starter_fd = starter.read.release();
    options.standby = true;
    auto exit_code = std::async(std::launch::async, [&] { return daemon::run_program(options); });
    CHECK(exit_code.wait_for(150ms) == std::future_status::timeout);
    SECTION("and serves") {
        const auto port = other->endpoint().port;
        other.reset();
        const boost::json::object line = boost::json::parse(read_to_end(ready.read)).as_object();
        CHECK(line.at("port") == port);
        starter.write.reset();  // no agent has joined it
        CHECK(exit_code.get() == exit_code::kInfrastructure);
    }
    SECTION("unless its starter does not need it any more") {
        starter.write.reset();
        CHECK(exit_code.get() == exit_code::kSuccess);
        CHECK(read_to_end(ready.read).empty());
    }
}

TEST_CASE("ddprund that other hosts can reach does not start without a job key", "[daemon][unit]") {
    daemon::Options options;
    options.daemon = quick_config();
    options.daemon.bind = asio::ip::address_v4::any();
    ::setenv("DDPRUN_JOB_KEY_FILE", "/proc/self/no-such-file", 1);
    CHECK(daemon::run_program(options) == exit_code::kUsage);
    ::unsetenv("DDPRUN_JOB_KEY_FILE");
}

TEST_CASE("a log file that cannot be written is wrong usage", "[daemon][unit]") {
    daemon::Options options;
    options.daemon = quick_config();
    options.log_file = "/proc/self/no-such-folder/log";
    CHECK(daemon::run_program(options) == exit_code::kUsage);
}
