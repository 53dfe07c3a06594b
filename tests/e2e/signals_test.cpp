// Signals to the process that the user has started, or to all processes of a job, and their effect on the job.

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "common/system/process_state.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

namespace {

using Catch::Contains;

/// `script` as every worker, under `ddprun options…`.
e2e::Command job(std::vector<std::string> options, const std::string& script) {
    options.insert(options.begin(), (e2e::bin() / "ddprun").string());
    options.insert(options.end(), {"sh", "-c", script});
    return {.argv = std::move(options)};
}

/// Of one node, or of each of two.
std::vector<std::string> of_two_workers(bool emulated) {
    std::vector<std::string> options{"--nproc-per-node", "2"};
    if (emulated) options.insert(options.end(), {"--nnodes", "2", "--local-nodes"});
    return options;
}

std::ptrdiff_t lines(const std::string& text) { return std::ranges::count(text, '\n'); }

}  // namespace

TEST_CASE("an interrupted job ends with one line", "[e2e]") {
    const e2e::Sandbox sandbox("interrupted");
    const int signal = GENERATE(SIGINT, SIGTERM);
    const bool emulated = GENERATE(false, true);
    CAPTURE(signal, emulated);
    e2e::Process process(sandbox, job(of_two_workers(emulated), "echo up; exec sleep 1000"));
    const int workers = emulated ? 4 : 2;
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == workers; }));
    process.signal(signal);
    CHECK(process.wait(e2e::Seconds(20)).exit_code() == 128 + signal);
    CHECK(process.err() == fmt::format("[ddprun] interrupted by SIG{}: {} workers stopped on {} node{}\n",
                                       signal == SIGINT ? "INT" : "TERM", workers, emulated ? 2 : 1,
                                       emulated ? "s" : ""));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a second Ctrl-C kills workers that do not heed the first", "[e2e]") {
    const e2e::Sandbox sandbox("twice");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    e2e::Process process(sandbox,
                         job(of_two_workers(emulated), "trap 'echo asked' TERM; echo up; while :; do sleep 0.1; done"));
    const int workers = emulated ? 4 : 2;
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == workers; }));
    process.signal(SIGINT);
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == 2 * workers; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(600));  // else it is taken for the same
    CHECK(process.running());
    process.signal(SIGINT);
    CHECK(process.wait(e2e::Seconds(10)).exit_code() == 130);  // and not after the grace of 30 s
    CHECK_THAT(process.err(), Contains("killing the workers"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a scheduler that signals every process of a job stops it once", "[e2e]") {
    const e2e::Sandbox sandbox("every-process");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    const std::string script = "trap 'sleep 1; echo saved; exit' TERM; echo up; while :; do sleep 0.1; done";
    e2e::Process process(sandbox, job(of_two_workers(emulated), script));
    const int workers = emulated ? 4 : 2;
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == workers; }));
    std::vector<pid_t> all = sandbox.pids("ddprun");
    for (const pid_t daemon : sandbox.pids("ddprund")) std::erase(all, daemon);
    CHECK(all.size() == (emulated ? 6 : 2));  // guard and launcher, and guard and agent of two nodes
    for (const pid_t pid : all) ::kill(pid, SIGTERM);
    CHECK(process.wait(e2e::Seconds(20)).exit_code() == 143);
    CHECK(lines(process.out()) == 2 * workers);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("under nohup a job survives the end of its terminal", "[e2e]") {
    const e2e::Sandbox sandbox("nohup");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    auto line = job(of_two_workers(emulated), "trap 'echo notified' USR1; echo up; while :; do sleep 0.1; done");
    line.argv.insert(line.argv.begin(), "nohup");
    e2e::Process process(sandbox, line);
    const int workers = emulated ? 4 : 2;
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == workers; }));
    process.signal(SIGHUP);
    process.signal(SIGUSR1);
    CHECK(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == 2 * workers; }));
    CHECK(process.running());
    process.signal(SIGTERM);
    CHECK(process.wait(e2e::Seconds(20)).exit_code() == 143);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("nothing is left when what stands above emulated nodes is killed, nor what their workers have started",
          "[e2e]") {
    const e2e::Sandbox sandbox("above-killed");
    const std::string victim =
        GENERATE(as<std::string>(), "guard", "guard, the launcher is stopped", "launcher", "both");
    CAPTURE(victim);
    e2e::Process process(sandbox, job(of_two_workers(true), "setsid sleep 1000 & echo up; wait"));
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == 4; }));
    std::vector<pid_t> below = sandbox.pids("--local-nodes");
    std::erase_if(below, [&](pid_t pid) { return ddprun::parent_of(pid) != process.pid(); });
    REQUIRE(below.size() == 1);
    const pid_t launcher = below[0];
    if (victim.ends_with("stopped")) ::kill(launcher, SIGSTOP);
    if (victim != "launcher") process.signal(SIGKILL);
    if (victim == "launcher" || victim == "both") ::kill(launcher, SIGKILL);
    CHECK(e2e::eventually(e2e::Seconds(5), [&] { return sandbox.pids().size() == sandbox.pids("ddprund").size(); }));
    CHECK(process.wait(e2e::Seconds(10)).exit_code() == 137);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a signal named by --signals-to-handle ends the job, as others do", "[e2e]") {
    const e2e::Sandbox sandbox("handled");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    auto options = of_two_workers(emulated);
    options.insert(options.end(), {"--signals-to-handle", "SIGUSR1"});
    e2e::Process process(sandbox, job(options, "trap 'echo notified' USR2; echo up; while :; do sleep 0.1; done"));
    const int workers = emulated ? 4 : 2;
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == workers; }));
    process.signal(SIGUSR2);  // not named: for the workers
    CHECK(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == 2 * workers; }));
    process.signal(SIGUSR1);
    CHECK(process.wait(e2e::Seconds(20)).exit_code() == 128 + SIGUSR1);
    CHECK(process.err() == fmt::format("[ddprun] interrupted by SIGUSR1: {} workers stopped on {} node{}\n", workers,
                                       emulated ? 2 : 1, emulated ? "s" : ""));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("workers get the signal that --signals-to-handle names, and SIGKILL after the grace", "[e2e]") {
    const e2e::Sandbox sandbox("handled-by-workers");
    const auto [named, sent, got] = GENERATE(table<std::string, int, std::string>(
        {{"SIGUSR1", SIGUSR1, "USR1"}, {"SIGINT,USR2", SIGINT, "INT"}, {"SIGUSR1", SIGQUIT, "TERM"}}));
    const bool obeys = GENERATE(true, false);
    CAPTURE(named, sent, obeys);
    const std::string traps = "for name in USR1 USR2 INT HUP TERM; do trap \"echo got $name; $END\" $name; done; ";
    e2e::Process process(
        sandbox,
        job({"--nproc-per-node", "2", "--signals-to-handle", named, "--shutdown-timeout", obeys ? "30" : "1"},
            fmt::format("END={}; ", obeys ? "'exit 0'" : ":") + traps + "echo up; while :; do sleep 0.1; done"));
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == 2; }));
    process.signal(sent);
    CHECK(process.wait(e2e::Seconds(20)).exit_code() == 128 + sent);
    const std::string line = fmt::format("got {}\n", got);
    CHECK(process.out() == "up\nup\n" + line + line);
    const bool was_killed = process.err().find(fmt::format("1 s after SIG{}; killing", got)) != std::string::npos;
    CHECK(was_killed == !obeys);
    CHECK(sandbox.leftovers() == "");
}
