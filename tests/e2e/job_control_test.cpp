// Ctrl-Z and fg of a job in a shell on a terminal.

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "common/system/process_state.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"
#include "tests/e2e/shell.hpp"

TEST_CASE("Ctrl-Z stops the workers and ddprun, fg continues them, Ctrl-C ends them", "[e2e]") {
    const e2e::Sandbox sandbox("job-control");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    e2e::Shell shell(sandbox);
    shell.type(fmt::format("{} --nproc-per-node 2 {} sh -c 'echo up; exec sleep 1000'\n",
                           (e2e::bin() / "ddprun").string(), emulated ? "--nnodes 2 --local-nodes" : ""));
    const std::size_t workers = emulated ? 4 : 2;
    for (std::size_t i = 0; i < workers; ++i) REQUIRE(shell.shows("up\r\n"));
    // A worker says "up" before its exec of sleep.
    std::vector<pid_t> pids;
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] {
        pids = sandbox.pids("sleep 1000");
        std::erase_if(pids, [](pid_t pid) { return e2e::read_file(fmt::format("/proc/{}/comm", pid)) != "sleep\n"; });
        return pids.size() == workers;
    }));
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
