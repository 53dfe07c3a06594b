// Signals to the process that the user has started, or to all processes of a job, and their effect on the job.

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <regex>
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

/// Returns the lines of ddprun without the one that reports a stop of more than 1.5 s, as on a busy machine.
std::string without_wait(const std::string& err) {
    static const std::regex wait(R"(\[ddprun\] got SIG\w+: waiting up to [^\n]*\n)");
    return std::regex_replace(err, wait, "");
}

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
    CHECK(without_wait(process.err()) == fmt::format("[ddprun] interrupted by SIG{}: {} workers stopped on {} node{}\n",
                                                     signal == SIGINT ? "INT" : "TERM", workers, emulated ? 2 : 1,
                                                     emulated ? "s" : ""));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a second Ctrl-C kills workers that do not heed the first", "[e2e]") {
    const e2e::Sandbox sandbox("twice");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    e2e::Process process(sandbox,
                         job(of_two_workers(emulated), "trap 'echo asked' INT; echo up; while :; do sleep 0.1; done"));
    const int workers = emulated ? 4 : 2;
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == workers; }));
    process.signal(SIGINT);
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == 2 * workers; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(600));  // else it is taken for the same
    CHECK(process.running());
    process.signal(SIGINT);
    CHECK(process.wait(e2e::Seconds(20)).exit_code() == 130);  // and not after the grace of 30 s
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
    for (const std::string helper : {"ddprund", "ddprun-keeper"}) {
        for (const pid_t pid : sandbox.pids(helper)) std::erase(all, pid);
    }
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
    CHECK(e2e::eventually(e2e::Seconds(20), [&] { return sandbox.pids().size() == sandbox.pids("ddprund").size(); }));
    CHECK(process.wait(e2e::Seconds(20)).exit_code() == 137);
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
    CHECK(without_wait(process.err()) ==
          fmt::format("[ddprun] interrupted by SIGUSR1: {} workers stopped on {} node{}\n", workers, emulated ? 2 : 1,
                      emulated ? "s" : ""));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("workers get the signal that ddprun got, if it is handled, and SIGKILL after the grace", "[e2e]") {
    const e2e::Sandbox sandbox("handled-by-workers");
    const auto [named, sent, got] = GENERATE(table<std::string, int, std::string>(
        {{"SIGUSR1", SIGUSR1, "USR1"}, {"", SIGINT, "INT"}, {"", SIGHUP, "HUP"}, {"SIGUSR1", SIGQUIT, "TERM"}}));
    const bool obeys = GENERATE(true, false);
    CAPTURE(named, sent, obeys);
    const std::string traps = "for name in USR1 USR2 INT HUP TERM; do trap \"echo got $name; $END\" $name; done; ";
    std::vector<std::string> options{"--nproc-per-node", "2", "--shutdown-timeout", obeys ? "30" : "3"};
    if (!named.empty()) options.insert(options.end(), {"--signals-to-handle", named});
    const std::string end = fmt::format("END={}; ", obeys ? "'exit 0'" : ":");
    e2e::Process process(sandbox, job(options, end + traps + "echo up; while :; do sleep 0.1; done"));
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == 2; }));
    process.signal(sent);
    CHECK(process.wait(e2e::Seconds(20)).exit_code() == 128 + sent);
    const std::string line = fmt::format("got {}\n", got);
    CHECK(process.out() == "up\nup\n" + line + line);
    const bool was_killed = process.err().find(fmt::format("3 s after SIG{}; killing", got)) != std::string::npos;
    CHECK(was_killed == !obeys);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("background processes of a script, which ignore SIGINT, do not hold up a Ctrl-C", "[e2e]") {
    const e2e::Sandbox sandbox("background");
    e2e::Process process(sandbox, job(of_two_workers(false), "sleep 1000 & setsid sleep 1000 & echo up; wait"));
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == 2; }));
    process.signal(SIGINT);
    CHECK(process.wait(e2e::Seconds(20)).exit_code() == 130);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a job that a signal does not end at once names the workers that it waits for", "[e2e]") {
    const e2e::Sandbox sandbox("slow-end");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    auto options = of_two_workers(emulated);
    options.insert(options.end(), {"--shutdown-timeout", "60"});
    e2e::Process process(sandbox, job(options, "trap '' INT; echo up; while :; do sleep 0.1; done"));
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == (emulated ? 4 : 2); }));
    process.signal(SIGINT);
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.err()) > 0; }));
    CHECK_THAT(process.err(), Contains("[ddprun] got SIGINT: waiting up to 5") &&
                                  Contains(emulated ? "s for the workers of node0 and node1 to end; Ctrl-C again"
                                                    : "s for 2 workers to end (ranks 0-1); Ctrl-C again"));
    CHECK(lines(process.err()) == 1);
    process.signal(SIGINT);
    CHECK(process.wait(e2e::Seconds(20)).exit_code() == 130);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a caller that ignores the end of its children makes no difference", "[e2e]") {
    const e2e::Sandbox sandbox("ignored-chld");
    const std::string options = GENERATE("", "--nnodes 2 --local-nodes ");
    const std::string line = "trap '' CHLD; exec " + (e2e::bin() / "ddprun").string() + " " + options + "true";
    e2e::Process job(sandbox, {{"sh", "-c", line}, {}, {}});
    CHECK(job.wait(e2e::Seconds(30)).success());
    CHECK(job.err() == "");
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("Ctrl-C ends a job of emulated nodes although an agent is stopped", "[e2e]") {
    const e2e::Sandbox sandbox("frozen-node");
    e2e::Process process(sandbox, job(of_two_workers(true), "echo up; exec sleep 1000"));
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == 4; }));
    std::vector<pid_t> agents = sandbox.pids("ddprun --as-local-node");
    std::erase_if(agents, [](pid_t pid) { return e2e::read_file(fmt::format("/proc/{}/comm", pid)) != "ddprun\n"; });
    REQUIRE(agents.size() == 2);
    ::kill(agents[0], SIGSTOP);
    process.signal(SIGINT);
    CHECK(process.wait(e2e::Seconds(20)).exit_code() == 130);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a failure before the signal is named when the job ends", "[e2e]") {
    const e2e::Sandbox sandbox("hidden-failure");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    auto options = of_two_workers(emulated);
    options.insert(options.end(), {"--shutdown-timeout", "3"});
    // Rank 1 fails when rank 0 has its trap; a SIGTERM before that would end rank 0 without a word.
    const std::string script =
        R"(trap 'echo asked' TERM INT; test $RANK = 0 && touch "$READY"; test $RANK = 1 && )"
        R"({ until test -e "$READY"; do sleep 0.05; done; echo '{"message": "out of paper"}' >$TORCHELASTIC_ERROR_FILE; exit 3; }; )"
        "while :; do sleep 0.1; done";
    e2e::Process process(sandbox, job(options, "READY='" + (sandbox.path() / "ready").string() + "'; " + script));
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return process.out().find("asked") != std::string::npos; }));
    process.signal(SIGINT);  // within the 2 s in which no line about the failure is printed
    CHECK(process.wait(e2e::Seconds(20)).exit_code() == 130);
    CHECK_THAT(process.err(),
               Contains("before the signal: rank 1 on ") && Contains(" exited with code 3: out of paper"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("workers of other nodes get a notification, and the signal that ends the job", "[e2e]") {
    const e2e::Sandbox sandbox("two-terminals");
    const std::string endpoint = fmt::format("127.0.0.1:{}", e2e::free_port());
    const std::vector<std::string> options{"--nnodes", "2", "--nproc-per-node", "2", "--rdzv-endpoint", endpoint};
    const std::string script =
        "for name in USR1 INT TERM; do trap \"echo got $name; test $name = USR1 || exit\" $name; "
        "done; echo up; while :; do sleep 0.1; done";
    e2e::Process first(sandbox, job(options, script));
    e2e::Process second(sandbox, job(options, script));
    const auto both = [&](std::ptrdiff_t count) { return lines(first.out()) == count && lines(second.out()) == count; };
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return both(2); }));
    first.signal(SIGUSR1);
    CHECK(e2e::eventually(e2e::Seconds(20), [&] { return both(4); }));
    second.signal(SIGINT);
    CHECK(first.wait(e2e::Seconds(20)).exit_code() == 130);
    CHECK(second.wait(e2e::Seconds(20)).exit_code() == 130);
    for (const e2e::Process* process : {&first, &second})
        CHECK(process->out() == "up\nup\ngot USR1\ngot USR1\ngot INT\ngot INT\n");
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a notification that every node gets reaches each worker once", "[e2e]") {
    const e2e::Sandbox sandbox("notify-all");
    e2e::Process process(sandbox,
                         job(of_two_workers(true), "trap 'echo got USR1' USR1; echo up; while :; do sleep 0.1; done"));
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == 4; }));
    process.signal(SIGUSR1);  // the launcher sends it to both nodes
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) >= 8; }));
    process.signal(SIGTERM);
    CHECK(process.wait(e2e::Seconds(20)).exit_code() == 143);
    CHECK(lines(process.out()) == 8);
    CHECK(sandbox.leftovers() == "");
}
