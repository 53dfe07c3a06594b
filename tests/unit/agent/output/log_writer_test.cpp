// Log files on a slow file system: a pipe that is not read stands for it.
#include "agent/output/log_writer.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <csignal>
#include <future>
#include <string>
#include <vector>

#include "agent/output/worker_stream.hpp"
#include "tests/catch.hpp"
#include "tests/unit/agent/workers/processes.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace agent_test;
using std::chrono::milliseconds;

namespace {

struct Logs {
    boost::asio::io_context io{1};
    std::vector<std::string> warnings;
    LogWriter writer{io, [this](const std::string& problem) { warnings.push_back(problem); }};
    Pipe disk;
    LogFile file = writer.take(std::move(disk.write_end), "/logs/rank-0.out");

    void run_briefly() {
        io.restart();
        io.run_for(milliseconds(5));
    }
};

}  // namespace

TEST_CASE("a disk that takes nothing delays no caller, and gets everything in order later", "[agent]") {
    Logs logs;
    std::string expected;
    for (int i = 0; !logs.file.backlogged(); ++i) {
        REQUIRE(i < 1'000'000);
        const std::string line = std::to_string(i) + std::string(1000, '.') + "\n";
        logs.file.write(line);
        expected += line;
    }
    logs.file.close();
    auto read = std::async(std::launch::async, [fd = logs.disk.read_end.get()] {
        std::string text, buffer(1 << 16, '\0');
        for (ssize_t size; (size = ::read(fd, buffer.data(), buffer.size())) > 0;)
            text.append(buffer, 0, static_cast<std::size_t>(size));
        return text;
    });
    logs.writer.finish(milliseconds(20'000));
    CHECK((read.get() == expected));
    CHECK(logs.warnings.empty());
}

TEST_CASE("a worker waits for a disk that takes nothing, it loses no byte and the loop goes on", "[agent]") {
    Logs logs;
    Pipe pipe;
    Route route;
    route.file = std::move(logs.file);
    const pid_t worker = fork_flushed();
    if (worker == 0) {
        const std::string block(1 << 20, 'x');
        for (int i = 0; i < 20; ++i) {
            for (std::size_t at = 0; at < block.size();) {
                const ssize_t count = ::write(pipe.write_end.get(), block.data() + at, block.size() - at);
                if (count <= 0) ::_exit(1);
                at += static_cast<std::size_t>(count);
            }
        }
        ::_exit(0);
    }
    pipe.write_end.reset();
    const auto stream = std::make_shared<WorkerStream>(logs.io, std::move(pipe.read_end), std::move(route));
    stream->start();
    CHECK(eventually([&] {
        logs.run_briefly();  // returns: nothing in the loop waits for the disk
        return !logs.warnings.empty();
    }));

    std::size_t received = 0;
    auto read = std::async(std::launch::async, [&, fd = logs.disk.read_end.get()] {
        std::string buffer(1 << 16, '\0');
        for (ssize_t size; received < (20u << 20) && (size = ::read(fd, buffer.data(), buffer.size())) > 0;)
            received += static_cast<std::size_t>(size);
    });
    CHECK(eventually([&] {
        logs.run_briefly();
        return read.wait_for(milliseconds(0)) == std::future_status::ready;
    }));
    CHECK(wait_for(worker).success());
    stream->finish();
    logs.writer.finish(milliseconds(20'000));
    CHECK(received == 20u << 20);
    REQUIRE_FALSE(logs.warnings.empty());
    CHECK_THAT(logs.warnings[0], Catch::Contains("workers that print wait for their log files: /logs/rank-0.out is"));
}

TEST_CASE("single bytes that wait take little more memory than they are", "[agent]") {
    Logs logs;
    constexpr int kWrites = 200'000;  // as many jobs would be a backlog
    for (int i = 0; i < kWrites; ++i) logs.file.write("x");
    CHECK_FALSE(logs.file.backlogged());
    CHECK(::fcntl(logs.disk.read_end.get(), F_SETPIPE_SZ, 1 << 20) > 0);
    logs.writer.finish(milliseconds(20'000));
    std::string text(kWrites + 1, '\0');
    CHECK(::read(logs.disk.read_end.get(), text.data(), text.size()) == kWrites);
}

TEST_CASE("without a writer thread there are no log files, and everything else goes on", "[agent]") {
    pthread_attr_t usual, too_large;
    REQUIRE(::pthread_getattr_default_np(&usual) == 0);
    REQUIRE(::pthread_getattr_default_np(&too_large) == 0);
    REQUIRE(::pthread_attr_setstacksize(&too_large, std::size_t{1} << 60) == 0);  // more than any address space
    REQUIRE(::pthread_setattr_default_np(&too_large) == 0);
    Logs logs;
    REQUIRE(::pthread_setattr_default_np(&usual) == 0);
    CHECK(!logs.file);
    logs.file.write("line\n");
    logs.run_briefly();
    REQUIRE(logs.warnings.size() == 1);
    CHECK_THAT(logs.warnings[0], Catch::Contains("cannot start a thread to write log files"));
    sigset_t blocked;
    ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
    CHECK(::sigismember(&blocked, SIGTERM) == 0);
    logs.writer.finish(milliseconds(0));
}

TEST_CASE("the end does not wait for a disk without limit, and reports what is missing", "[agent]") {
    Logs logs;
    logs.file.write(std::string(1 << 20, 'x'));
    logs.file.close();
    logs.writer.finish(milliseconds(50));
    REQUIRE(logs.warnings.size() == 1);
    CHECK_THAT(logs.warnings[0], Catch::Contains("were not written within 0.05 s and are lost"));
    CHECK_THAT(logs.warnings[0], Catch::Contains("/logs/rank-0.out"));
    logs.disk.read_end.reset();  // lets the writer go; SIGPIPE is blocked in its thread
}

TEST_CASE("a file that cannot be written is reported at once, by the loop", "[agent]") {
    Logs logs;
    logs.disk.read_end.reset();
    logs.file.write("line\n");
    CHECK(eventually([&] {
        logs.run_briefly();
        return !logs.warnings.empty();
    }));
    CHECK_THAT(logs.warnings[0], Catch::Contains("/logs/rank-0.out: Broken pipe"));
}
