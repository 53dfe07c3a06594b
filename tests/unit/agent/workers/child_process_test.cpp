#include "agent/workers/child_process.hpp"

#include <boost/asio/steady_timer.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/agent/workers/processes.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace agent_test;

namespace {

/// A running test worker and the end of its stdout.
struct Child {
    boost::asio::io_context io{1};
    Mark mark;
    Pipe out;
    std::optional<ChildProcess> process;

    explicit Child(std::vector<std::string> actions) {
        actions.insert(actions.begin(), shapes());
        process.emplace(
            ChildProcess::start(io, {std::move(actions), {mark.assignment()}, out.write_end.get(), 2}).value());
        out.write_end.reset();
    }
    [[nodiscard]] std::string line() const { return read_line(out.read_end.get()); }
    ExitStatus end() {
        bool ended = false;
        process->async_wait([&] { ended = true; });
        io.run_for(std::chrono::seconds(20));
        REQUIRE(ended);
        return process->status().value();
    }
};

}  // namespace

TEST_CASE("exit codes and signals are distinguished", "[agent]") {
    CHECK(Child({"exit=11"}).end() == ExitStatus{ExitStatus::Kind::kExited, 11, false});
    CHECK(Child({"raise=9"}).end() == ExitStatus{ExitStatus::Kind::kSignaled, SIGKILL, false});
    CHECK(Child({"raise=15"}).end() == ExitStatus{ExitStatus::Kind::kSignaled, SIGTERM, false});
}

TEST_CASE("a status can be read repeatedly until the process is reaped", "[agent]") {
    Child child({"exit=3"});
    child.end();
    CHECK(child.process->status()->number == 3);
    CHECK(child.process->status()->number == 3);
    CHECK(child.process->reap().number == 3);
    Child running({"wait"});
    CHECK_FALSE(running.process->status().has_value());
}

TEST_CASE("a child leads a process group in our session, and has default signals and three descriptors", "[agent]") {
    const Pipe held;  // the child must not inherit it
    std::signal(SIGUSR2, SIG_IGN);
    sigset_t usr1;
    ::sigemptyset(&usr1);
    ::sigaddset(&usr1, SIGUSR1);
    ::sigprocmask(SIG_BLOCK, &usr1, nullptr);
    Child child({"ids", "descriptors", "masks"});
    std::signal(SIGUSR2, SIG_DFL);
    ::sigprocmask(SIG_UNBLOCK, &usr1, nullptr);

    const std::string pid = std::to_string(child.process->pid());
    CHECK(child.line() == pid + " " + pid + " " + std::to_string(::getsid(0)));
    CHECK(child.line() == "0 1 2 ");
    CHECK(child.line() == "SigBlk:\t0000000000000000");
    CHECK(child.line() == "SigIgn:\t0000000000000000");
    CHECK(child.end().success());
}

TEST_CASE("a child has the given environment and no other", "[agent]") {
    ::setenv("AGENT_TEST_LEAK", "1", 1);
    Child child({"env=AGENT_TEST", "env=AGENT_TEST_LEAK", "env=PATH"});
    ::unsetenv("AGENT_TEST_LEAK");
    CHECK(child.line() == child.mark.value());
    CHECK(child.line() == "(unset)");
    CHECK(child.line() == "(unset)");
}

TEST_CASE("swapped output descriptors arrive where they were sent", "[agent]") {
    boost::asio::io_context io;
    const Mark mark;
    Pipe out, err;
    // The hardest case: each has the number that the other must get.
    const UniqueFd saved_out(::dup(1)), saved_err(::dup(2));
    ::dup2(err.write_end.get(), 1);
    ::dup2(out.write_end.get(), 2);
    auto started = ChildProcess::start(io, {{shapes(), "out=to out\n", "err=to err\n"}, {mark.assignment()}, 2, 1});
    ::dup2(saved_out.get(), 1);
    ::dup2(saved_err.get(), 2);
    REQUIRE(started.has_value());
    CHECK(read_line(out.read_end.get()) == "to out");
    CHECK(read_line(err.read_end.get()) == "to err");
}

TEST_CASE("a program that cannot be executed is an error with the reason, and leaves no process", "[agent]") {
    boost::asio::io_context io;
    const auto failure = [&](const std::string& path) {
        auto started = ChildProcess::start(io, {{path}, {}, 1, 2});
        REQUIRE_FALSE(started.has_value());
        INFO(started.error().message);
        CHECK(started.error().message.find(path) != std::string::npos);
        CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
        return started.error().code.value();
    };
    CHECK(failure("/nonexistent/program") == ENOENT);
    CHECK(failure("/etc/passwd/program") == ENOTDIR);
    CHECK(failure("/etc") == EACCES);
    const TemporaryDirectory directory;
    const auto plain = directory.file("plain", "#!/bin/sh\n", 0400);
    CHECK(failure(plain.string()) == EACCES);
    const auto garbage = directory.file("garbage", std::string("\x01\x02\x03 garbage", 11), 0500);
    CHECK(failure(garbage.string()) == ENOEXEC);
    const auto script = directory.file("script", "#!/nonexistent/interpreter\n", 0500);
    CHECK(failure(script.string()) == ENOENT);
    const auto text = [&](const std::string& path) {
        return ChildProcess::start(io, {{path}, {}, 1, 2}).error().message;
    };
    CHECK_THAT(text("/nonexistent/program"), Catch::EndsWith("and that it is installed on that host too"));
    CHECK_THAT(text(script.string()), Catch::EndsWith("Install the interpreter, or correct its path there"));
    CHECK_THAT(
        text(garbage.string()),
        Catch::EndsWith("or begin the script with a line such as #!/bin/sh; a Python script runs with --run-path"));
}

TEST_CASE("a failed start prints nothing twice", "[agent]") {
    const Pipe out;
    const pid_t helper = fork_flushed();
    if (helper == 0) {
        ::dup2(out.write_end.get(), 1);
        std::printf("once");  // still in the buffer while the child starts and ends
        boost::asio::io_context io;
        const bool started = ChildProcess::start(io, {{"/nonexistent"}, {}, 1, 2}).has_value();
        std::fflush(stdout);
        ::_exit(started ? 1 : 0);
    }
    CHECK(wait_for(helper).success());
    char text[16] = "";
    CHECK(::read(out.read_end.get(), text, sizeof text) == 4);
    CHECK(std::string(text) == "once");
}

TEST_CASE("a signal to the group reaches grandchildren, also when their parent has ended", "[agent]") {
    Child child({"child", "child", "exit=0"});
    CHECK(child.end().success());
    CHECK(eventually([&] { return child.mark.processes().size() == 2; }));
    child.process->signal_group(SIGTERM);
    CHECK(child.mark.none_left());
}

TEST_CASE("a child runs on its CPUs alone, with the memory near them", "[agent]") {
    int policy = -1;  // a container may hide and forbid it
    const bool shown = ::syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0) == 0;
    const CpuSet allowed = allowed_cpu_set();
    const int last = *allowed.rbegin();
    boost::asio::io_context io{1};
    const Pipe out;
    auto child = ChildProcess::start(
        io, {.argv = {shapes(), "binding"}, .stdout_fd = out.write_end.get(), .cpus = cpu_mask({last})});
    REQUIRE(child.has_value());
    CHECK(read_line(out.read_end.get()) == fmt::format("{} policy {}", last, shown ? MPOL_LOCAL : -1));
    child->reap();
    CHECK(allowed_cpu_set() == allowed);  // of this process
    auto free = ChildProcess::start(io, {.argv = {shapes(), "binding"}, .stdout_fd = out.write_end.get()});
    REQUIRE(free.has_value());
    CHECK_THAT(read_line(out.read_end.get()),
               Catch::EndsWith(fmt::format("{} policy {}", number_list(allowed), policy)));
    free->reap();
}

TEST_CASE("CPUs that are not there any more are reported as the cause, not the program", "[agent]") {
    boost::asio::io_context io{1};
    const auto started = ChildProcess::start(io, {.argv = {shapes(), "exit=0"}, .cpus = cpu_mask({8000, 8001})});
    REQUIRE(started.has_error());
    CHECK(started.error().code == Errc::kSystem);
    CHECK_THAT(
        started.error().message,
        Catch::StartsWith("cannot bind the new process to the CPUs 8000-8001 of --numa-binding: Invalid argument. ") &&
            Catch::Contains("switched off"));
}

TEST_CASE("the destructor ends a child and its group", "[agent]") {
    Child child({"child", "stubborn", "out=ready\n", "wait"});
    CHECK(child.line() == "ready");
    CHECK(child.mark.processes().size() == 3);
    child.process.reset();
    CHECK(child.mark.none_left());
}

TEST_CASE("a child dies with the process that started it", "[agent]") {
    const Mark mark;
    const Pipe ready;
    const pid_t parent = fork_flushed();
    if (parent == 0) {
        boost::asio::io_context io;
        auto child =
            ChildProcess::start(io, {{shapes(), "out=ready\n", "wait"}, {mark.assignment()}, ready.write_end.get(), 2});
        for (;;) ::pause();
    }
    CHECK(read_line(ready.read_end.get()) == "ready");
    REQUIRE(mark.processes().size() == 1);
    ::kill(parent, SIGKILL);
    CHECK(mark.none_left());
    CHECK(wait_for(parent).number == SIGKILL);
}

TEST_CASE("a node without free descriptors is reported as the cause, not the program", "[agent]") {
    const auto left = static_cast<std::size_t>(GENERATE(0, 1));  // 1: enough for the parent, not for the child
    CAPTURE(left);
    boost::asio::io_context io{1};
    const boost::asio::steady_timer has_a_reactor(io);  // as the agent's io_context has before it starts a worker
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit small{64, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &small);
    std::vector<UniqueFd> all;
    for (int fd; (fd = ::open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0;) all.emplace_back(fd);
    all.resize(all.size() - left);
    const auto started = ChildProcess::start(io, {{shapes(), "exit=0"}, {}, 1, 2});
    all.clear();
    ::setrlimit(RLIMIT_NOFILE, &before);
    REQUIRE(started.has_error());
    CHECK(started.error().code == Errc::kLimit);
    CHECK_THAT(started.error().message, Catch::Contains("Too many open files") && Catch::Contains("ulimit -n"));
    CHECK_THAT(started.error().message, !Catch::Contains("cannot execute"));
}

TEST_CASE("an error names the resource that ran out and what to do, other errors ask for a report", "[agent]") {
    CHECK_THAT(start_error("cannot fork", EAGAIN).message,
               Catch::StartsWith("cannot fork: ") && Catch::Contains("ulimit -u"));
    CHECK(start_error("cannot fork", ENOMEM).code == Errc::kLimit);
    CHECK(start_error("cannot fork", EBADF).code == Errc::kSystem);
    CHECK_THAT(start_error("cannot fork", EBADF).message, Catch::Contains("errno 9") && Catch::Contains("report"));
}
