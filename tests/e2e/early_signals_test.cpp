// Signals before a job runs: in the first milliseconds of ddprun, in the rendezvous, and inherited as blocked.

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <random>
#include <thread>

#include "common/system/process_state.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"
#include "tests/machine_pauses.hpp"

namespace {

using Catch::Contains;

std::string ddprun_program() { return (e2e::bin() / "ddprun").string(); }

bool is_waiting(const e2e::Process& process) { return process.err().find("waiting at") != std::string::npos; }

}  // namespace

TEST_CASE("a ddprun that a signal ends at once leaves no daemon behind", "[e2e]") {
    const e2e::Sandbox sandbox("early");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    std::vector<std::string> line{ddprun_program(), "--nproc-per-node", "2"};
    if (emulated) line.insert(line.end(), {"--nnodes", "2", "--local-nodes"});
    line.insert(line.end(), {"sleep", "1000"});
    std::mt19937 random(std::random_device{}());
    std::uniform_int_distribution<int> any_time(0, 80'000);
    for (int run = 0; run < 20; ++run) {
        const std::chrono::microseconds delay(any_time(random));
        CAPTURE(run, delay.count());
        e2e::Process process(sandbox, {.argv = line});
        std::this_thread::sleep_for(delay);  // a moment of the start; the result is the same at any
        process.signal(SIGTERM);
        CHECK(process.wait(e2e::Seconds(30)).exit_code() == 143);
        CHECK_THAT(process.err(), !Contains("ddprun-guard"));
        const MachinePauses pauses;
        const auto ended = std::chrono::steady_clock::now();
        CHECK(e2e::eventually(e2e::Seconds(30), [&] { return sandbox.pids().empty(); }));
        const auto taken = std::chrono::steady_clock::now() - ended;
        INFO("this machine stood still for " << pauses.sum().count() << " ms");
        CHECK(taken - pauses.sum() < std::chrono::seconds(4));  // and not after 5 s
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("ddprun that was started with signals blocked heeds them", "[e2e]") {
    const e2e::Sandbox sandbox("blocked");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    const std::string python =
        "import os, signal, sys; "
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); os.execv(sys.argv[1], sys.argv[1:])";
    std::vector<std::string> line{"/usr/bin/python3", "-c", python, ddprun_program(), "--nproc-per-node", "2"};
    if (emulated) line.insert(line.end(), {"--nnodes", "2", "--local-nodes"});
    line.insert(line.end(), {"sh", "-c", "trap 'echo notified' USR1; echo up; while :; do sleep 0.1; done"});
    e2e::Process process(sandbox, {.argv = line});
    const auto count = [&](const char* text) {
        std::size_t found = 0;
        for (std::size_t at = 0; (at = process.out().find(text, at)) != std::string::npos; ++at) ++found;
        return found;
    };
    const std::size_t workers = emulated ? 4 : 2;
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return count("up") == workers; }));
    process.signal(SIGUSR1);
    CHECK(e2e::eventually(e2e::Seconds(20), [&] { return count("notified") == workers; }));
    process.signal(SIGTERM);
    CHECK(process.wait(e2e::Seconds(20)).exit_code() == 143);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("in the rendezvous a notification ends nothing, and a signal ends ddprun", "[e2e]") {
    const e2e::Sandbox sandbox("rendezvous");
    const std::string endpoint = fmt::format("127.0.0.1:{}", e2e::free_port());
    const int signal = GENERATE(SIGINT, SIGTERM, SIGHUP, SIGQUIT);
    e2e::Process process(sandbox, {.argv = {ddprun_program(), "--nnodes", "2", "--rdzv-endpoint", endpoint, "true"}});
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return ddprun::handles_signal(process.pid(), SIGUSR1); }));
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] {  // while the daemon and the guard start, too
        process.signal(SIGUSR1);
        process.signal(SIGUSR2);
        return is_waiting(process);
    }));
    process.signal(SIGUSR1);
    process.signal(signal);
    CHECK(process.wait(e2e::Seconds(20)).exit_code() == 128 + signal);
    CHECK_THAT(process.err(), Contains("no worker was running"));
    CHECK(sandbox.leftovers() == "");
}
