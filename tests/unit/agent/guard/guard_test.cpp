// ddprun-guard as a program: it forwards signals and the exit code, and leaves no process below it.
#include <fcntl.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "agent/guard/children.hpp"
#include "agent/guard/pid_namespace.hpp"
#include "agent/guard/process_look.hpp"
#include "agent/guard/start_guard.hpp"
#include "common/system/process_state.hpp"
#include "tests/catch.hpp"
#include "tests/unit/agent/workers/processes.hpp"

using namespace ddprun;
using namespace agent_test;

namespace {

/// A guard above an agent that is the test worker.
struct Guarded {
    Mark mark;
    Pipe out;
    Pipe err;
    pid_t guard = -1;

    explicit Guarded(std::vector<std::string> actions, bool nohup = false, const agent::GuardSettings& settings = {}) {
        guard = fork_flushed();
        if (guard == 0) {
            ::setenv("AGENT_TEST", mark.value().c_str(), 1);
            ::dup2(out.write_end.get(), 1);
            ::dup2(err.write_end.get(), 2);
            std::signal(SIGHUP, nohup ? SIG_IGN : SIG_DFL);
            const agent::GuardPipes pipes = agent::become_guarded(AGENT_TEST_GUARD, settings);
            std::vector<char*> argv{const_cast<char*>(AGENT_TEST_SHAPES)};
            for (const std::string& action : actions) argv.push_back(const_cast<char*>(action.c_str()));
            argv.push_back(nullptr);
            ::execv(argv[0], argv.data());
            ::_exit(97);
        }
        out.write_end.reset();
        err.write_end.reset();
    }
    /// Returns the child of the guard with that name, as soon as there is one.
    [[nodiscard]] pid_t child(const std::string& name) const {
        pid_t found = 0;
        const auto is_found = [&] {
            for (const pid_t pid : mark.processes())
                if (parent_of(pid) == guard && agent::look_at(pid).name == name) found = pid;
            return found > 0;
        };
        REQUIRE(eventually(is_found));
        return found;
    }
    ~Guarded() {
        if (guard <= 0) return;
        ::kill(guard, SIGTERM);  // only after a failed check: the guard kills what its agent leaves
        static_cast<void>(wait_for(guard));
    }
    [[nodiscard]] std::string line() const { return read_line(out.read_end.get()); }
    ExitStatus end() { return wait_for(std::exchange(guard, -1)); }
};

const std::vector<std::string> kShapes{"child", "session", "daemon", "stubborn", "chain"};

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

bool is_alive(pid_t pid) {
    const char state = agent::look_at(pid).state;
    return state == 'S' || state == 'R';
}

/// Starts a server from a script that ends after the agent has started, so that the guard becomes the server's parent.
/// Returns the server's pid when the guard has ended.
pid_t server_of_older_script(bool own_session) {
    const Pipe out, go, ready;
    const pid_t guard = fork_flushed();
    if (guard == 0) {
        if (fork_flushed() == 0) {  // the script
            const pid_t server = fork_flushed();
            if (server == 0) {
                if (own_session) ::setsid();
                if (::write(ready.write_end.get(), "\n", 1) != 1) ::_exit(1);
                for (;;) ::pause();
            }
            static_cast<void>(read_line(ready.read_end.get()));
            static_cast<void>(read_line(go.read_end.get()));
            const std::string line = std::to_string(server) + "\n";
            ::_exit(::write(out.write_end.get(), line.data(), line.size()) > 0 ? 0 : 1);
        }
        const agent::GuardPipes pipes = agent::become_guarded(AGENT_TEST_GUARD);
        if (::write(go.write_end.get(), "\n", 1) != 1) ::_exit(1);
        const std::string line = read_line(out.read_end.get());
        const bool adopted = eventually([&] { return parent_of(std::atoi(line.c_str())) == ::getppid(); });
        const std::string again = line + "\n";
        ::_exit(::write(out.write_end.get(), again.data(), again.size()) > 0 && adopted ? 5 : 1);
    }
    CHECK(wait_for(guard).exit_code() == 5);
    return std::atoi(read_line(out.read_end.get()).c_str());
}

/// Gives up the privileges of root, if this process has them, so that a pid namespace needs a user namespace.
bool become_other_user() {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() != 0) return true;
    const bool changed = ::setgroups(0, nullptr) == 0 && ::setresgid(kNobody, kNobody, kNobody) == 0 &&
                         ::setresuid(kNobody, kNobody, kNobody) == 0;
    return changed && ::prctl(PR_SET_DUMPABLE, 1) == 0 && ::access(AGENT_TEST_GUARD, X_OK) == 0;
}

}  // namespace

TEST_CASE("the guard exits with the agent's exit code, or 128 plus its signal", "[agent]") {
    CHECK(Guarded({"exit=0"}).end().exit_code() == 0);
    CHECK(Guarded({"exit=7"}).end().exit_code() == 7);
    CHECK(Guarded({"raise=15"}).end() == ExitStatus{ExitStatus::Kind::kExited, 143, false});
}

TEST_CASE("the agent has a session of its own below the process that was started", "[agent]") {
    Guarded node({"ids", "exit=0"});
    const std::string ids = node.line();
    const std::string pid = ids.substr(0, ids.find(' '));
    CHECK(pid != std::to_string(node.guard));
    CHECK(ids == pid + " " + pid + " " + pid);
    CHECK(node.end().success());
}

TEST_CASE("an emulated node's agent leads a process group in the session of its launcher", "[agent]") {
    Guarded node({"ids", "exit=0"}, false, {.leads = agent::Leads::kGroup});
    const std::string ids = node.line();
    const std::string pid = ids.substr(0, ids.find(' '));
    CHECK(pid != std::to_string(node.guard));
    CHECK(ids == pid + " " + pid + " " + std::to_string(::getsid(0)));
    CHECK(node.end().success());
}

TEST_CASE("processes that a killed agent leaves have ended when the guard ends", "[agent]") {
    Guarded node(kShapes + std::vector<std::string>{"ids", "wait"});
    const int agent_pid = std::atoi(node.line().c_str());
    REQUIRE(agent_pid > 0);
    CHECK(node.mark.processes().size() >= 6);  // guard, agent and four that wait
    ::kill(agent_pid, SIGKILL);
    CHECK(node.end().exit_code() == 137);
    CHECK(node.mark.processes().empty());
    CHECK_THAT(read_line(node.err.read_end.get()),
               Catch::Contains("(pid " + std::to_string(agent_pid) + ") was killed by SIGKILL; stopped"));
}

TEST_CASE("the guard does not count the processes that have ended with the pid namespace of a killed agent",
          "[agent]") {
    if (!agent::probe_pid_namespace()) {
        WARN("SKIPPED: this machine allows no pid namespace");
        return;
    }
    Guarded node(kShapes + std::vector<std::string>{"ids", "wait"}, false, {.pid_namespace = true});
    CHECK_THAT(node.line(), Catch::StartsWith("1 "));
    const pid_t agent_pid = node.child("agent_test_shap");
    ::kill(agent_pid, SIGKILL);
    CHECK(node.end().exit_code() == 137);
    CHECK_THAT(read_line(node.err.read_end.get()),
               Catch::Contains("(pid " + std::to_string(agent_pid) +
                               ") was killed by SIGKILL; the processes it left have ended with its pid namespace."));
}

TEST_CASE("the loss of the keeper is reported with the signal's name", "[agent]") {
    Guarded node({"signals", "exit=4"}, false, {.control_group = "/nonexistent"});
    REQUIRE(node.line() == "listening");
    const pid_t keeper = node.child("ddprun-keeper");
    ::kill(keeper, SIGKILL);
    CHECK_THAT(read_line(node.err.read_end.get()),
               Catch::Contains("ddprun-keeper (pid " + std::to_string(keeper) + ") was killed by SIGKILL. The job"));
    ::kill(node.guard, SIGTERM);
    CHECK(node.end().exit_code() == 4);
}

TEST_CASE("processes that an agent leaves after its own end have ended too, and its exit code stays", "[agent]") {
    Guarded node(kShapes + std::vector<std::string>{"exit=5"});
    CHECK(node.end().exit_code() == 5);
    CHECK(node.mark.processes().empty());
    CHECK(read_line(node.err.read_end.get()).empty());
}

TEST_CASE("processes in the session of an emulated node's guard have ended with its agent", "[agent]") {
    Guarded node(kShapes + std::vector<std::string>{"exit=5"}, false, {.leads = agent::Leads::kGroup});
    CHECK(node.end().exit_code() == 5);
    CHECK(node.mark.processes().empty());
}

TEST_CASE("signals are forwarded to the agent, none is lost and none ends the guard", "[agent]") {
    Guarded node({"signals", "exit=4"});
    REQUIRE(node.line() == "listening");
    for (const int signal : {SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGTERM}) {
        ::kill(node.guard, signal);
        CHECK(node.line() == ::sigabbrev_np(signal));
    }
    CHECK(node.end().exit_code() == 4);
}

TEST_CASE("under nohup a hang-up is not forwarded", "[agent]") {
    Guarded node({"signals"}, true);
    REQUIRE(node.line() == "listening");
    ::kill(node.guard, SIGHUP);
    ::kill(node.guard, SIGUSR1);
    CHECK(node.line() == "USR1");
    ::kill(node.guard, SIGTERM);
    CHECK(node.line() == "TERM");
    CHECK(node.end().success());
}

TEST_CASE("the agent reads end-of-file when its guard is killed, and not before", "[agent]") {
    const Pipe out;
    const pid_t guard = fork_flushed();
    if (guard == 0) {
        const UniqueFd lifeline = agent::become_guarded(AGENT_TEST_GUARD).guard_pipe;
        char byte = 0;
        ::fcntl(lifeline.get(), F_SETFL, O_NONBLOCK);
        const bool early = ::read(lifeline.get(), &byte, 1) == 0;
        ::fcntl(lifeline.get(), F_SETFL, 0);
        const char* first = early ? "closed\n" : "open\n";
        if (::write(out.write_end.get(), first, std::strlen(first)) < 0) ::_exit(1);
        const bool ended = ::read(lifeline.get(), &byte, 1) == 0;
        const char* second = ended ? "end\n" : "?\n";
        ::_exit(::write(out.write_end.get(), second, std::strlen(second)) > 0 ? 0 : 1);
    }
    CHECK(read_line(out.read_end.get()) == "open");
    ::kill(guard, SIGKILL);
    CHECK(read_line(out.read_end.get()) == "end");
    CHECK(wait_for(guard).number == SIGKILL);
}

TEST_CASE("without the guard's program both processes end", "[agent]") {
    const Pipe err, out;
    const pid_t pid = fork_flushed();
    if (pid == 0) {
        ::dup2(err.write_end.get(), 2);
        const agent::GuardPipes pipes = agent::become_guarded("/nonexistent/ddprun-guard");
        for (;;) ::pause();
    }
    CHECK(wait_for(pid).exit_code() == 70);
    CHECK_THAT(read_line(err.read_end.get()), Catch::Contains("/nonexistent/ddprun-guard"));
}

TEST_CASE("the guard leaves children alone that its process had before the agent", "[agent]") {
    const Pipe out;
    const pid_t guard = fork_flushed();
    if (guard == 0) {
        const pid_t older = fork_flushed();
        if (older == 0) {
            for (;;) ::pause();
        }
        const agent::GuardPipes pipes = agent::become_guarded(AGENT_TEST_GUARD);
        const std::string line = std::to_string(older) + "\n";
        ::_exit(::write(out.write_end.get(), line.data(), line.size()) > 0 ? 5 : 1);
    }
    const pid_t older = std::atoi(read_line(out.read_end.get()).c_str());
    REQUIRE(older > 1);
    CHECK(wait_for(guard).exit_code() == 5);
    CHECK(is_alive(older));
    ::kill(older, SIGKILL);
}

TEST_CASE("the guard leaves alone what an older child leaves behind, unless it has a session of its own", "[agent]") {
    const pid_t server = server_of_older_script(false);
    REQUIRE(server > 1);
    CHECK(is_alive(server));
    ::kill(server, SIGKILL);
    // It looks like a process of the job.
    const pid_t daemon = server_of_older_script(true);
    REQUIRE(daemon > 1);
    CHECK_FALSE(is_alive(daemon));
}

TEST_CASE("a pid namespace is made although a thread is left that waits for ever", "[agent]") {
    const Pipe out;
    const pid_t guard = fork_flushed();
    if (guard == 0) {
        ::dup2(out.write_end.get(), 1);
        std::setvbuf(stdout, nullptr, _IONBF, 0);
        if (!become_other_user() || !agent::probe_pid_namespace()) {
            std::puts("skip");
            ::_exit(0);
        }
        std::thread([] {
            for (;;) ::pause();
        }).detach();
        try {
            const agent::GuardPipes pipes = agent::become_guarded(AGENT_TEST_GUARD, {.pid_namespace = true});
            std::printf("pid %d\n", ::getpid());
            ::_exit(5);
        } catch (const ErrorException& failure) {
            std::puts(failure.error().message.c_str());
            ::_exit(1);
        }
    }
    const std::string line = read_line(out.read_end.get());
    const int code = wait_for(guard).exit_code();
    if (line == "skip") {
        WARN("SKIPPED: this machine allows no pid namespace, or not the start of the guard by another user");
        return;
    }
    CHECK(line == "pid 1");
    CHECK(code == 5);
}

TEST_CASE("the guard rejects a start by hand", "[agent]") {
    const Pipe err;
    const pid_t pid = fork_flushed();
    if (pid == 0) {
        ::dup2(err.write_end.get(), 2);
        ::execl(AGENT_TEST_GUARD, "ddprun-guard", "--agent-pid", "x", nullptr);
        ::_exit(97);
    }
    CHECK(wait_for(pid).exit_code() == 2);
}

TEST_CASE("children are listed with and without help from the kernel", "[agent]") {
    std::vector<pid_t> born;
    for (int i = 0; i < 3; ++i) {
        const pid_t pid = fork_flushed();
        if (pid == 0) {
            for (;;) ::pause();
        }
        born.push_back(pid);
    }
    std::vector<pid_t> listed(16), scanned(16);
    listed.resize(static_cast<std::size_t>(agent::list_children(listed.data(), 16)));
    scanned.resize(static_cast<std::size_t>(agent::list_children_by_scan(scanned.data(), 16)));
    CHECK_THAT(listed, Catch::UnorderedEquals(born));
    CHECK_THAT(scanned, Catch::UnorderedEquals(born));
    pid_t two[2];
    CHECK(agent::list_children(two, 2) == 2);
    CHECK(agent::list_children_by_scan(two, 2) == 2);
    for (const pid_t pid : born) ::kill(pid, SIGKILL);
    for (const pid_t pid : born) ::waitpid(pid, nullptr, 0);
    CHECK(agent::list_children(two, 2) == 0);
}
