// Log files on a slow file system: a pipe that is not read stands for it.
#include "agent/output/log_writer.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <csignal>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "agent/output/worker_stream.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
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
    LogFile file = writer.take(std::move(disk.write_end), "the log file /logs/rank-0.out");

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
    CHECK_THAT(logs.warnings[0],
               Catch::Contains("workers that print wait for their log files: the log file /logs/rank-0.out is"));
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
    CHECK_THAT(logs.warnings[0], Catch::Contains("cannot start a thread to write the log file /logs/rank-0.out"));
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

TEST_CASE("of many files on a full disk the first is reported at once, and all at the end", "[agent]") {
    Logs logs;
    std::vector<LogFile> files;
    for (int i = 0; i < 64; ++i) {
        files.push_back(logs.writer.take(UniqueFd(::open("/dev/full", O_WRONLY | O_CLOEXEC)),
                                         "the log file /logs/full-" + std::to_string(i)));
        files.back().write("line\n");
    }
    CHECK(eventually([&] {
        logs.run_briefly();
        return !logs.warnings.empty();
    }));
    files.clear();
    logs.writer.finish(milliseconds(20'000));
    REQUIRE(logs.warnings.size() == 2);
    CHECK(logs.warnings[0] ==
          "cannot write the log file /logs/full-0: No space left on device; the file ends here, and the job goes on "
          "without it");
    CHECK(logs.warnings[1] == "320 bytes of 64 files are missing, the first is the log file /logs/full-0");
}

TEST_CASE("a file system that does not answer when a log file is opened delays no caller", "[agent]") {
    const TemporaryDirectory directory;
    const std::string path = directory.path() / "rank-0.out";
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);  // open(2) waits for a reader
    Logs logs;
    LogFile file = logs.writer.open(path);
    file.write("line\n");
    file.close();
    logs.writer.finish(milliseconds(50));
    REQUIRE(logs.warnings.size() == 1);
    CHECK_THAT(logs.warnings[0], Catch::Contains("5 bytes were not written within 0.05 s") && Catch::Contains(path));
    CHECK(read_file(path) == "line\n");  // the server is back
}

TEST_CASE("a log file exists before the first byte, and one that cannot be opened is reported", "[agent]") {
    const TemporaryDirectory directory;
    Logs logs;
    const LogFile empty = logs.writer.open((directory.path() / "new/rank-0.out").string());
    LogFile absent = logs.writer.open("/proc/nowhere/rank-1.out");
    absent.write("line\n");
    logs.writer.finish(milliseconds(20'000));
    CHECK(std::filesystem::exists(directory.path() / "new/rank-0.out"));
    REQUIRE(logs.warnings.size() == 2);
    CHECK_THAT(logs.warnings[0], Catch::Contains("cannot create the folder /proc/nowhere: ") &&
                                     Catch::EndsWith("; the job goes on without it"));
    CHECK(logs.warnings[1] == "5 bytes of the log file /proc/nowhere/rank-1.out are missing");
}

TEST_CASE("a file is replaced in one step, and readable by its owner alone", "[agent]") {
    const TemporaryDirectory directory;
    const auto path = directory.path() / "gen-1/rank-0.error.json";
    Logs logs;
    logs.writer.replace(path, "the error file", "first");
    logs.writer.replace(path, "the error file", "second");
    logs.writer.replace("/proc/nowhere/rank-1.error.json", "the error file", "third");
    logs.writer.finish(milliseconds(20'000));
    CHECK(read_file(path) == "second");
    CHECK(std::filesystem::status(path).permissions() == std::filesystem::perms(0600));
    REQUIRE(logs.warnings.size() == 2);
    CHECK_THAT(logs.warnings[0], Catch::Contains("/proc/nowhere"));
    CHECK(logs.warnings[1] == "5 bytes of the error file are missing");
}
