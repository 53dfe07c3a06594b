// The messages of ddprun on stderr: almost none in a job without failures, and one clear account of a failure.

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"
#include "tests/e2e/training.hpp"

namespace {

using Catch::Contains;

std::string ddprun_program() { return (e2e::bin() / "ddprun").string(); }

/// `script` as every worker, under `ddprun options…`.
e2e::Command job(std::vector<std::string> options, const std::string& script) {
    options.insert(options.begin(), ddprun_program());
    options.insert(options.end(), {"sh", "-c", script});
    return {.argv = std::move(options)};
}

std::ptrdiff_t lines(const std::string& text) { return std::ranges::count(text, '\n'); }

}  // namespace

TEST_CASE("a job in which all goes well prints what its program prints", "[e2e]") {
    const e2e::Sandbox sandbox("quiet");
    const auto options = GENERATE(values<std::vector<std::string>>(
        {{"--nproc-per-node", "2"}, {"--standalone"}, {"--nnodes", "2", "--local-nodes", "--nproc-per-node", "2"}}));
    CAPTURE(options);
    const auto outcome = e2e::run(sandbox, job(options, "echo hi"));
    CHECK(outcome.status.exit_code() == 0);
    CHECK(outcome.err == "");
    auto loud = job(options, "echo hi");
    loud.env = {{"LOGLEVEL", "info"}};
    CHECK_THAT(e2e::run(sandbox, loud).err, Contains("serves run"));
    auto verbose = job(options, "echo hi");
    verbose.argv.insert(verbose.argv.begin() + 1, "-v");
    CHECK_THAT(e2e::run(sandbox, verbose).err, Contains("[ddprund] ") && Contains("generation 1 runs with"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("two terminals of one machine are two nodes with names of their own, and each reports which it is", "[e2e]") {
    const e2e::Sandbox sandbox("terminals");
    const std::vector<std::string> options{
        "--nnodes", "2", "--nproc-per-node", "2", "--rdzv-endpoint", fmt::format("127.0.0.1:{}", e2e::free_port())};
    // exec: a SIGINT that comes before dash waits for its child is taken when that child ends.
    e2e::Process first(sandbox, job(options, "echo $DDPRUN_NODE_NAME; exec sleep 1000"));
    REQUIRE(e2e::eventually(e2e::Seconds(20),
                            [&] { return first.err().find("1 of 2 nodes are here") != std::string::npos; }));
    CHECK_THAT(first.err(), Contains("giving up after 600 s"));
    e2e::Process second(sandbox, job(options, "echo $DDPRUN_NODE_NAME; exec sleep 1000"));
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(first.out()) == 2 && lines(second.out()) == 2; }));
    const std::string name = first.out().substr(0, first.out().find('\n'));
    CHECK(second.out() == fmt::format("{0}#2\n{0}#2\n", name));
    CHECK_THAT(first.err(), Contains(fmt::format("this is node 0 of 2 ({}): ranks 0-1 of 4, generation 1\n", name)));
    CHECK(second.err() == fmt::format("[ddprun] this is node 1 of 2 ({}#2): ranks 2-3 of 4, generation 1\n", name));

    second.signal(SIGINT);
    CHECK(second.wait(e2e::Seconds(20)).exit_code() == 130);
    CHECK(first.wait(e2e::Seconds(20)).exit_code() == 130);
    CHECK_THAT(second.err(), Contains("interrupted by SIGINT: 2 workers stopped on this node"));
    CHECK_THAT(first.err(), Contains(fmt::format("node {}#2 was interrupted by SIGINT", name)) &&
                                Contains("4 workers stopped on 2 nodes"));
    CHECK_THAT(first.err() + second.err(), !Contains("===") && !Contains("too few"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("if a node cannot start a worker, the failure is the node's, not the program's", "[e2e]") {
    const e2e::Sandbox sandbox("no-descriptors");
    // Its limit would do for its workers, but it inherits many open files.
    const std::string line = fmt::format(
        "ulimit -n 400; for i in {{20..300}}; do eval \"exec $i</dev/null\"; done; exec {} --nproc-per-node 64 sleep "
        "1000",
        ddprun_program());
    const auto outcome = e2e::run(sandbox, {.argv = {"bash", "-c", line}}, e2e::Seconds(60));
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 69);
    CHECK_THAT(outcome.err,
               Contains("not a failure of sleep") && Contains("could not start rank") && Contains("ulimit -n"));
    CHECK_THAT(outcome.err, !Contains("sleep FAILED"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("more workers than the limits of the machine allow are refused before anything is started", "[e2e]") {
    const e2e::Sandbox sandbox("limits");
    const std::string nodes = GENERATE(as<std::string>(), "", "--nnodes 2 --local-nodes");
    const std::string line =
        fmt::format("ulimit -n 1024; exec {} {} --nproc-per-node 4096 touch started", ddprun_program(), nodes);
    const auto outcome = e2e::run(sandbox, {.argv = {"sh", "-c", line}, .directory = sandbox.path()}, e2e::Seconds(30));
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 69);
    CHECK(lines(outcome.err) == 1);
    CHECK_THAT(outcome.err,
               Contains("4096 workers per node") && Contains("only 1024 are allowed here. The hard limit is 1024"));
    CHECK_FALSE(std::filesystem::exists(sandbox.path() / "started"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the verdict names script, interpreter and log file, and the ranks that had ended before", "[e2e]") {
    const e2e::Sandbox sandbox("box");
    e2e::write_file(sandbox.path() / "train.py",
                    R"py(import os, sys, time
if os.environ['RANK'] == '0':
    with open('pid.new', 'w') as file: file.write(str(os.getpid()))
    os.rename('pid.new', 'pid')
    sys.exit(0)
while not os.path.exists('pid'): time.sleep(0.01)
stat = '/proc/' + open('pid').read() + '/stat'
while ') Z ' not in open(stat).read(): time.sleep(0.01)
sys.exit('no peer')
)py");
    const auto outcome = e2e::run(sandbox, {.argv = {ddprun_program(), "--nproc-per-node", "2", "--rdzv-id", "j",
                                                     "--log-dir", "logs", "train.py"},
                                            .directory = sandbox.path()});
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 1);
    CHECK_THAT(outcome.err, Contains("train.py (python3) FAILED") && Contains("rank 0 had already exited with code 0"));
    CHECK_THAT(outcome.err, Contains(": " + (sandbox.path() / "logs/j/gen-1/rank-1.err").string() + "\n"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("whichever emulated node is killed, the verdict is printed once", "[e2e]") {
    const e2e::Sandbox sandbox("node0-killed");
    const bool goes_on = GENERATE(false, true);
    const std::string restarts = GENERATE("0", "1");
    CAPTURE(goes_on, restarts);
    e2e::Process process(sandbox,
                         job({"--nnodes", goes_on ? "1:2" : "2", "--local-nodes", "--max-restarts", restarts},
                             "echo $DDPRUN_NODE_NAME; [ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 9; exec sleep 1000"));
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(process.out()) == 2; }));
    std::vector<pid_t> guards = sandbox.pids("ddprun-guard");
    std::erase(guards, process.pid());  // the one of the launcher
    REQUIRE(guards.size() == 2);
    REQUIRE(::kill(guards.front(), SIGKILL) == 0);
    CHECK(process.wait(e2e::Seconds(60)).exit_code() == (goes_on ? 9 : 69));
    CAPTURE(process.err());
    CHECK_THAT(process.err(),
               Contains("was killed by SIGKILL") && Contains(goes_on ? "sh FAILED" : "INFRASTRUCTURE FAILURE"));
    if (!goes_on) {
        CHECK_THAT(process.err(), Contains("node0") && Contains("needs 2") && !Contains("2:2"));
        CHECK_THAT(process.err(), Contains("Look for what ended the node") && Contains("dmesg"));
    }
    const std::string rule(78, '-');
    CHECK(process.err().find(rule) != std::string::npos);
    CHECK(process.err().find(rule) == process.err().rfind(rule));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("when a node of a job of fixed size is lost and no restart is left the job ends at once and names it",
          "[e2e]") {
    const e2e::Sandbox sandbox("node-lost");
    const std::vector<std::string> options{"--nnodes", "2", "--rdzv-endpoint",
                                           fmt::format("127.0.0.1:{}", e2e::free_port())};
    // The other node's workers fail when a peer is gone, as trainers do.
    const std::string script = R"sh(echo $$ >$RANK.new; mv $RANK.new $RANK
lives() { stat=$(cat /proc/$(cat 1)/stat 2>/dev/null) && case $stat in *') Z '*) return 1;; esac; }
while [ ! -e 1 ] || lives; do sleep 0.05; done; echo 'Connection closed by peer' >&2; exit 1)sh";
    auto line = job(options, script);
    line.directory = sandbox.path();
    e2e::Process first(sandbox, line);
    REQUIRE(e2e::eventually(e2e::Seconds(20),
                            [&] { return first.err().find("1 of 2 nodes are here") != std::string::npos; }));
    e2e::Process second(sandbox, line);
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return std::filesystem::exists(sandbox.path() / "1"); }));
    const pid_t worker = std::stoi(e2e::read_file(sandbox.path() / "1"));
    for (const pid_t pid : e2e::processes_of_node_of(worker)) ::kill(pid, SIGKILL);
    const auto killed_at = std::chrono::steady_clock::now();
    CHECK(first.wait(e2e::Seconds(30)).exit_code() == 69);
    CHECK(std::chrono::steady_clock::now() - killed_at < std::chrono::seconds(15));  // not join_timeout, 600 s
    CHECK(second.wait(e2e::Seconds(20)).exit_code() == 137);
    CAPTURE(first.err());
    CHECK_THAT(first.err(), Contains("#2 was lost: connection closed; the job needs 2 nodes and only 1 is left") &&
                                Contains("--max-restarts 0") && Contains("INFRASTRUCTURE FAILURE"));
    CHECK_THAT(first.err(), !Contains("stopping the workers: rank") && !Contains("stopping the other workers"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("when the daemon is killed the last line says that the workers were stopped, and what to do", "[e2e]") {
    const e2e::Sandbox sandbox("daemon");
    const bool emulated = GENERATE(false, true);
    std::vector<std::string> argv{ddprun_program(), "--nproc-per-node", "2", "sh", "-c", "echo here; exec sleep 60"};
    if (emulated) argv.insert(argv.begin() + 1, {"--nnodes", "2", "--local-nodes"});
    e2e::Process job(sandbox, {.argv = argv});
    const int workers = emulated ? 4 : 2;
    REQUIRE(e2e::eventually(e2e::Seconds(30), [&] { return lines(job.out()) == workers; }));
    for (const pid_t daemon : sandbox.pids("ddprund --bind")) ::kill(daemon, SIGKILL);
    CHECK(job.wait(e2e::Seconds(30)).exit_code() == 69);
    const std::string said = job.err();
    CAPTURE(emulated, said);
    CHECK_THAT(
        said,
        Contains("could not be reached again: its port refuses connections. The 2 workers of this node were stopped"));
    CHECK_THAT(said, Catch::EndsWith("then start the job again\n") && !Contains("no node is left"));  // it has one node
    CHECK(lines(said) <= (emulated ? 9 : 4));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("closed standard descriptors become /dev/null, not another file's number", "[e2e]") {
    const e2e::Sandbox sandbox("closed");
    const std::string closed = GENERATE(as<std::string>(), "0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-");
    CAPTURE(closed);
    // Of the agent (the worker's parent), of its parent, the guard, and of the daemon.
    const std::string look = R"sh(guard=$(cut -d' ' -f4 /proc/$PPID/stat)
daemon=$(for p in /proc/[0-9]*; do
    [ "$(cat $p/comm 2>/dev/null)" = ddprund ] && tr '\0' '\n' <$p/environ | grep -qx DDPRUN_TEST=$DDPRUN_TEST && echo ${p#/proc/}
done 2>/dev/null)
for p in $PPID $guard $daemon; do for fd in 0 1 2; do readlink /proc/$p/fd/$fd; done; done >"$LIST.new"
mv "$LIST.new" "$LIST")sh";
    const std::string list = (sandbox.path() / "descriptors").string();
    const std::string line = fmt::format("exec {} sh -c '{}' {}", ddprun_program(), "eval \"$LOOK\"", closed);
    const auto outcome =
        e2e::run(sandbox, {.argv = {"sh", "-c", line}, .env = {{"LOOK", look}, {"LIST", list}}}, e2e::Seconds(30));
    CHECK(outcome.status.exit_code() == 0);
    const std::string descriptors = e2e::read_file(list);
    CAPTURE(descriptors);
    CHECK(lines(descriptors) == 9);
    CHECK_THAT(descriptors, !Contains("socket:") && !Contains("pipe:") && !Contains("anon_inode:"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a stderr that takes nothing changes no exit code", "[e2e]") {
    const e2e::Sandbox sandbox("full");
    const auto [words, code] = GENERATE(table<std::string, int>({
        {"--nproc-per-node 2 sh -c 'exit 3'", 3},
        {"--nproc-per-node 2 --nnodes 2 --local-nodes sh -c 'exit 3'", 3},
        {"--nproc-per-node 0 true", 2},
        {"--nproc-per-node 2 ./absent", 127},
    }));
    CAPTURE(words);
    const std::string line = fmt::format("exec {} {} 2>/dev/full", ddprun_program(), words);
    CHECK(e2e::run(sandbox, {.argv = {"sh", "-c", line}}, e2e::Seconds(30)).status.exit_code() == code);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("lost output is reported and changes no exit code, the loss of a requested text does", "[e2e]") {
    const e2e::Sandbox sandbox("lost");
    const auto [words, code, says] = GENERATE(table<std::string, int, std::string>({
        {"ddprun --nproc-per-node 2 sh -c 'echo done'", 0,
         "the end of the output could not be written to stdout: No sp"},
        {"ddprun --nproc-per-node 2 sh -c 'echo done; exit 3'", 3, "could not be written to stdout: No space left"},
        {"ddprun --nnodes 2 --local-nodes sh -c 'echo done'", 0, "could not be written to stdout: No space left"},
        {"ddprun --help", 74, "ddprun: cannot write to stdout: No space left on device\n"},
        {"ddprun --version", 74, "ddprun: cannot write to stdout: No space left on device\n"},
        {"ddprund --help", 74, "ddprund: cannot write to stdout: No space left on device\n"},
        {"ddprund --version", 74, "ddprund: cannot write to stdout: No space left on device\n"},
        {"ddpctl --help", 74, "ddpctl: cannot write to stdout: No space left on device\n"},
        {"ddp-bench --version", 74, "ddp-bench: cannot write to stdout: No space left on device. "},
        {"ddp-fr-trace --help", 74, "ddp-fr-trace: cannot write to stdout: No space left on device\n"},
    }));
    CAPTURE(words);
    const std::string line = fmt::format("exec {}/{} >/dev/full", e2e::bin().string(), words);
    const auto outcome = e2e::run(sandbox, {.argv = {"sh", "-c", line}}, e2e::Seconds(30));
    CHECK(outcome.status.exit_code() == code);
    CHECK_THAT(outcome.err, Contains(says));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a reader that has gone before anything is written ends neither the job nor ddprun", "[e2e]") {
    const e2e::Sandbox sandbox("no-reader");
    const auto [descriptor, words, code] = GENERATE(table<int, std::string, int>({
        {2, "-v --monitor-interval 5 sh -c 'exit 3'", 3},  // which logs that the option has no effect
        {2, "-v --monitor-interval 5 --nnodes 2 --local-nodes sh -c 'exit 3'", 3},
        {2, "--nproc-per-node 0 true", 2},
        {1, "sh -c 'echo done; exit 3'", 3},
        {1, "--help", 74},
    }));
    CAPTURE(descriptor, words);
    const std::string line =
        fmt::format("mkfifo pipe; exec 3<>pipe 4>pipe 3>&-; exec {} {} {}>&4", ddprun_program(), words, descriptor);
    const auto outcome = e2e::run(sandbox, {.argv = {"sh", "-c", line}, .directory = sandbox.path()}, e2e::Seconds(30));
    CHECK(outcome.status == ddprun::ExitStatus{ddprun::ExitStatus::Kind::kExited, code});
    if (code == 74) CHECK(outcome.err == "ddprun: cannot write to stdout: Broken pipe\n");
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("without a stdout the loss of the output is reported once, and that of a requested text is an error",
          "[e2e]") {
    const e2e::Sandbox sandbox("no-stdout");
    const auto [words, code, says] = GENERATE(table<std::string, int, std::string>({
        {"ddprun --nproc-per-node 2 sh -c 'echo done; exit 0'", 0, "[ddprun] stdout is not open for writing: what the"},
        {"ddprun --nnodes 2 --local-nodes sh -c 'echo done'", 0, "[ddprun] stdout is not open for writing: what the"},
        {"ddprun --redirects 3 true", 0, "[ddprun] redirected output is in "},
        {"ddprun --help", 74, "ddprun: cannot write to stdout: Bad file descriptor"},
        {"ddprund --version", 74, "ddprund: cannot write to stdout: Bad file descriptor"},
        {"ddpctl --help", 74, "ddpctl: cannot write to stdout: Bad file descriptor"},
    }));
    CAPTURE(words);
    const std::string line = fmt::format("exec {}/{} >&-", e2e::bin().string(), words);
    const auto outcome = e2e::run(sandbox, {.argv = {"sh", "-c", line}, .directory = sandbox.path()}, e2e::Seconds(30));
    CHECK(outcome.status.exit_code() == code);
    CHECK_THAT(outcome.err, Catch::StartsWith(says));
    CHECK(lines(outcome.err) == (says.empty() ? 0 : 1));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a limit on the size of files ends the output, not the job", "[e2e]") {
    const e2e::Sandbox sandbox("file-size");
    const std::string nodes = GENERATE(as<std::string>(), "", "--nnodes 2 --local-nodes");
    CAPTURE(nodes);
    const auto lines = (sandbox.path() / "lines").string();
    const std::string line =
        fmt::format("ulimit -f 8; exec {} --nproc-per-node 1 {} sh -c 'seq 100000; exit 3' >{} 2>&1", ddprun_program(),
                    nodes, lines);
    CHECK(e2e::run(sandbox, {.argv = {"sh", "-c", line}}, e2e::Seconds(30)).status.exit_code() == 3);
    // Whole lines from the first on; of two nodes they may take turns.
    const std::string shown = e2e::read_file(lines);
    for (const char* number : {"\n1\n", "\n2\n", "\n3\n"}) CHECK_THAT("\n" + shown, Contains(number));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("in a deleted directory a missing program is reported as everywhere", "[e2e]") {
    const e2e::Sandbox sandbox("no-directory");
    const std::string line = fmt::format("mkdir '{0}/gone'; cd '{0}/gone'; rmdir '{0}/gone'; exec {1} {2}",
                                         sandbox.path().string(), ddprun_program(), GENERATE("./absent", "absent.py"));
    const auto outcome = e2e::run(sandbox, {.argv = {"sh", "-c", line}}, e2e::Seconds(30));
    CHECK(outcome.status.exit_code() == 127);
    CHECK_THAT(outcome.err, Contains("absent") && !Contains("internal error"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("workers that have become another user are named when they cannot be killed", "[e2e]") {
    if (::geteuid() != 0 || !std::filesystem::exists("/usr/bin/setpriv")) {
        WARN("SKIPPED: needs root and setpriv");
        return;
    }
    const e2e::Sandbox sandbox("foreign");
    const std::filesystem::path become = sandbox.path() / "become";  // as sudo: the real user changes, too
    std::filesystem::copy_file("/usr/bin/setpriv", become);
    REQUIRE(::chmod(become.c_str(), 04755) == 0);
    for (const auto& folder : {sandbox.path(), sandbox.path() / "tmp"}) REQUIRE(::chmod(folder.c_str(), 0777) == 0);
    e2e::Process process(sandbox,
                         {.argv = {"/usr/bin/setpriv", "--reuid", "65534", "--clear-groups", ddprun_program(),
                                   "--shutdown-timeout", "0.2", become.string(), "--reuid", "0", "sleep", "3"}});
    const auto is_worker = [](const std::string& line) { return line.ends_with(": sleep 3 "); };
    REQUIRE(e2e::eventually(e2e::Seconds(60), [&] { return std::ranges::any_of(sandbox.processes(), is_worker); }));
    process.signal(SIGTERM);
    CHECK(process.wait(e2e::Seconds(60)).exit_code() == 143);
    CHECK_THAT(process.err(), Contains("cannot kill process ") && Contains(", which became another user"));
    CHECK(sandbox.leftovers() == "");
}
