// Ctrl-Z and fg of a job in a shell on a terminal.

#include <fmt/format.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "common/system/process_state.hpp"
#include "common/system/unique_fd.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

namespace {

/// Shell: owns an interactive shell on a terminal of its own. Lines are typed into it; its output is read all the time.
class Shell {
public:
    explicit Shell(const e2e::Sandbox& sandbox) {
        int terminal = -1;
        pid_ = ::forkpty(&terminal, nullptr, nullptr, nullptr);
        if (pid_ == 0) {
            ::setenv("DDPRUN_TEST", sandbox.marker().c_str(), 1);
            ::setenv("TMPDIR", (sandbox.path() / "tmp").c_str(), 1);
            ::setenv("PS1", "prompt> ", 1);
            ::execl("/bin/bash", "bash", "--norc", "--noprofile", "--noediting", "-i", nullptr);
            ::_exit(127);
        }
        terminal_ = ddprun::UniqueFd(terminal);
    }
    ~Shell() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
    }
    Shell(const Shell&) = delete;
    Shell& operator=(const Shell&) = delete;

    /// Types `text`, in which \x1a is Ctrl-Z and \x03 is Ctrl-C.
    void type(const std::string& text) const { REQUIRE(::write(terminal_.get(), text.data(), text.size()) > 0); }
    /// Waits until the terminal has shown `text` since the last call.
    bool shows(const std::string& text) {
        return e2e::eventually(e2e::Seconds(20), [&] {
            char buffer[4096];
            pollfd readable{terminal_.get(), POLLIN, 0};
            if (::poll(&readable, 1, 0) == 1) {
                const ssize_t size = ::read(terminal_.get(), buffer, sizeof buffer);
                if (size > 0) shown_.append(buffer, static_cast<std::size_t>(size));
            }
            const auto at = shown_.find(text);
            if (at == std::string::npos) return false;
            shown_.erase(0, at + text.size());
            return true;
        });
    }

private:
    pid_t pid_ = -1;
    ddprun::UniqueFd terminal_;
    std::string shown_;
};

}  // namespace

TEST_CASE("Ctrl-Z stops the workers and ddprun, fg continues them, Ctrl-C ends them", "[e2e]") {
    const e2e::Sandbox sandbox("job-control");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    Shell shell(sandbox);
    shell.type(fmt::format("{} --nproc-per-node 2 {} sh -c 'echo up; exec sleep 1000'\n",
                           (e2e::bin() / "ddprun").string(), emulated ? "--nnodes 2 --local-nodes" : ""));
    const std::size_t workers = emulated ? 4 : 2;
    for (std::size_t i = 0; i < workers; ++i) REQUIRE(shell.shows("up\r\n"));
    const std::vector<pid_t> pids = [&] {
        std::vector<pid_t> found;
        for (const pid_t pid : sandbox.pids("sleep 1000")) {
            if (e2e::read_file(fmt::format("/proc/{}/comm", pid)) == "sleep\n") found.push_back(pid);
        }
        return found;
    }();
    REQUIRE(pids.size() == workers);
    const auto all = [&](ddprun::ProcessState state) {
        return e2e::eventually(e2e::Seconds(20), [&] {
            return std::ranges::all_of(pids, [&](pid_t pid) { return ddprun::process_state(pid) == state; });
        });
    };
    for (int round = 0; round < 2; ++round) {
        shell.type("\x1a");
        CHECK(shell.shows("Stopped"));
        CHECK(shell.shows("prompt> "));
        CHECK(all(ddprun::ProcessState::kStopped));
        // Longer than the daemon waits for a heartbeat: a node that counts as lost would have its workers stopped.
        const auto a_worker_has_ended = [&] {
            return std::ranges::any_of(
                pids, [](pid_t pid) { return ddprun::process_state(pid) != ddprun::ProcessState::kStopped; });
        };
        if (round == 0) CHECK_FALSE(e2e::eventually(e2e::Seconds(3.5), a_worker_has_ended));
        shell.type("fg\n");
        CHECK(all(ddprun::ProcessState::kRunning));
    }
    shell.type("\x03");
    CHECK(shell.shows("interrupted by SIGINT"));
    CHECK(shell.shows("prompt> "));
    shell.type("echo code $?\n");
    CHECK(shell.shows("code 130"));
    shell.type("exit\n");
    CHECK(sandbox.leftovers() == "");
}
