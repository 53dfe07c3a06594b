// The console of a job as a person reads it, and its log: prompts, times of day, folded lines.

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"
#include "tests/e2e/shell.hpp"

namespace {

std::string program() { return (e2e::bin() / "ddprun").string(); }

/// Returns a command of the shell that waits until all `workers` are there, so that they print at the same time.
std::string barrier(int workers) {
    return fmt::format(": >ready.$RANK; until [ $(ls ready.* | wc -l) = {} ]; do sleep 0.02; done; ", workers);
}

}  // namespace

TEST_CASE("a prompt is shown before its answer is typed", "[e2e]") {
    const e2e::Sandbox sandbox("prompt");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    e2e::Shell shell(sandbox);
    const std::string script = "printf \"na\"; printf \"me? \"; read name; echo \"Hello $name.\"";
    shell.type(fmt::format("{} {} --label --log-line-prefix-template '<$rank> ' sh -c '{}'\n", program(),
                           emulated ? "--local-nodes" : "", script));
    REQUIRE(shell.shows("<0> name? "));
    shell.type("Ada\n");
    CHECK(shell.shows("Ada\r\n<0> Hello Ada.\r\n"));
    CHECK(shell.shows("prompt> "));
}

TEST_CASE("a worker that is killed while it reads a password leaves the terminal as it was", "[e2e]") {
    const e2e::Sandbox sandbox("terminal-modes");
    e2e::Shell shell(sandbox);
    const std::string victim = GENERATE("$$", "$PPID");  // the worker, its agent
    shell.type(fmt::format("sh -c '{} sh -c \"stty -echo; kill -9 \\{}\"; stty | grep -c -e -echo; echo en''d'\n",
                           program(), victim));
    CHECK(shell.shows("\r\n0\r\nend"));
}

TEST_CASE("a line of another worker does not continue a prompt", "[e2e]") {
    const e2e::Sandbox sandbox("prompt-of-two");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    e2e::Shell shell(sandbox);
    e2e::write_file(sandbox.path() / "train.sh",
                    "if [ $RANK = 0 ]; then printf '(Pdb) '; read line; echo \"got $line\"; touch $1/got\n"
                    "else until [ -e $1/shown ]; do sleep 0.02; done; echo other; fi\n");
    shell.type(fmt::format("{0} --label {1} sh {2}/train.sh {2}\n", program(),
                           emulated ? "--nnodes 2 --local-nodes" : "--nproc-per-node 2", sandbox.path().string()));
    REQUIRE(shell.shows(":0] (Pdb) "));
    e2e::write_file(sandbox.path() / "shown", "");
    CHECK(shell.shows("\r\n["));
    CHECK(shell.shows(":1] other\r\n"));
    shell.type("p x\n");
    CHECK(shell.shows(":0] got p x\r\n"));
    CHECK(shell.shows("prompt> "));
}

TEST_CASE("a reader of the console that is no terminal gets whole lines although stdin is one", "[e2e]") {
    const e2e::Sandbox sandbox("no-prompt");
    e2e::Shell shell(sandbox);
    const std::string script =
        "if [ $RANK = 0 ]; then printf na; touch $0/half; until [ -e $0/other ]; do sleep 0.02; done; echo me; "
        "else until [ -e $0/go ]; do sleep 0.02; done; echo other; touch $0/other; fi";
    shell.type(fmt::format("{0} --label --nproc-per-node 2 sh -c '{1}' {2} | tee {2}/console\n", program(), script,
                           sandbox.path().string()));
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return std::filesystem::exists(sandbox.path() / "half"); }));
    // Longer than the time after which a terminal would show the first half.
    CHECK_FALSE(
        e2e::eventually(e2e::Seconds(0.5), [&] { return !e2e::read_file(sandbox.path() / "console").empty(); }));
    e2e::write_file(sandbox.path() / "go", "");
    CHECK(shell.shows(":1] other\r\n"));
    CHECK(shell.shows(":0] name\r\n"));
    CHECK(shell.shows("prompt> "));
}

TEST_CASE("ddprun's own lines have the time of day in a file, lines of workers where it is asked for", "[e2e]") {
    const e2e::Sandbox sandbox("times");
    const bool asked = GENERATE(false, true);
    CAPTURE(asked);
    const auto outcome = e2e::run(
        sandbox,
        {.argv = {"sh", "-c",
                  fmt::format("exec {} {} --label --log-dir logs --rdzv-id j --max-restarts 1 sh -c 'echo out; "
                              "exit $((1 - TORCHELASTIC_RESTART_COUNT))' 2>err >out",
                              program(), asked ? "--timestamps" : "")},
         .directory = sandbox.path()});
    CHECK(outcome.status.exit_code() == 0);
    const std::string time = R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d )";
    const std::string worker_time = asked ? time : "";
    const std::string own = e2e::read_file(sandbox.path() / "err");
    CAPTURE(own);
    CHECK(std::regex_search(own, std::regex("(^|\n)" + time + R"(\[ddprun\] restart 1 of 1)")));
    const std::string out = e2e::read_file(sandbox.path() / "out");
    CAPTURE(out);
    CHECK(std::regex_match(out, std::regex("(" + worker_time + R"(\[.*:0\] out\n){2})")));
    CHECK(std::regex_match(e2e::read_file(sandbox.path() / "logs/j/gen-1/rank-0.out"),
                           std::regex(worker_time + "out\n")));
}

TEST_CASE("on a terminal ddprun's own lines have the time of day only where it is asked for", "[e2e]") {
    const e2e::Sandbox sandbox("times-terminal");
    e2e::Shell shell(sandbox);
    shell.type(
        fmt::format("echo be''gin; {} --max-restarts 1 sh -c 'exit $((1 - TORCHELASTIC_RESTART_COUNT))'\n", program()));
    CHECK(shell.shows("begin\r\n[ddprun] restart 1 of 1"));
    shell.type(fmt::format("TZ=UTC {} --timestamps --max-restarts 1 sh -c 'exit $((1 - TORCHELASTIC_RESTART_COUNT))'\n",
                           program()));
    CHECK(shell.shows("+00:00 [ddprun] restart 1 of 1"));
}

TEST_CASE("with --timestamps every line of the box has the time of day", "[e2e]") {
    const e2e::Sandbox sandbox("times-box");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    const auto outcome = e2e::run(sandbox, {.argv = {"sh", "-c",
                                                     fmt::format("exec {} --timestamps {} sh -c 'exit 3' 2>err",
                                                                 program(), emulated ? "--local-nodes" : "")},
                                            .directory = sandbox.path()});
    CHECK(outcome.status.exit_code() == 3);
    const std::string box = e2e::read_file(sandbox.path() / "err");
    CAPTURE(box);
    CHECK_THAT(box, Catch::Contains("sh FAILED"));
    const std::regex form(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d .+)");
    std::istringstream lines(box);
    for (std::string line; std::getline(lines, line);) CHECK(std::regex_match(line, form));
}

TEST_CASE("with --pty workers print to terminals that follow the size of the window", "[e2e]") {
    const e2e::Sandbox sandbox("pty");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    e2e::Shell shell(sandbox);
    shell.resize(30, 100);
    const std::string script =
        "trap \"stty size <&2 >&2; exit\" WINCH; [ -t 1 ] && [ -t 2 ] && stty size <&1; "
        "while :; do sleep 0.02; done";
    shell.type(fmt::format("cd {}; {} --pty --label --log-line-prefix-template '<$rank> ' {} sh -c '{}'\n",
                           sandbox.path().string(), program(),
                           emulated ? "--nnodes 2 --local-nodes" : "--nproc-per-node 2", script));
    for (int i = 0; i < 2; ++i) REQUIRE(shell.shows("> 30 96\r\n"));
    shell.resize(40, 120);
    for (int i = 0; i < 2; ++i) CHECK(shell.shows("> 40 116\r\n"));
    CHECK(shell.shows("prompt> "));
    shell.type("exit\n");
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("with --pty a worker edits the answer to its prompt, and its file has its bytes", "[e2e]") {
    const e2e::Sandbox sandbox("pty-prompt");
    e2e::Shell shell(sandbox);
    const std::string script = "echo one; read -e -p \"name? \" name; echo \"Hello $name.\"";
    shell.type(fmt::format("cd {}; {} --pty -t 3 --log-dir logs --rdzv-id j bash -c '{}'\n", sandbox.path().string(),
                           program(), script));
    REQUIRE(shell.shows("name? "));
    shell.type(
        "da\x01"
        "A\n");  // Ctrl-A: to the beginning of the line
    CHECK(shell.shows("[default0]:Hello Ada.\r\n"));
    CHECK(shell.shows("prompt> "));
    CHECK(e2e::read_file(sandbox.path() / "logs/j/gen-1/rank-0.out") == "one\nHello Ada.\n");
}

TEST_CASE("without a terminal --pty has no effect, which the log notes", "[e2e]") {
    const e2e::Sandbox sandbox("no-pty");
    const bool verbose = GENERATE(false, true);
    std::vector<std::string> argv{program(), "--pty", "sh", "-c", "[ -t 1 ] || [ -t 2 ] || echo none"};
    if (verbose) argv.insert(argv.begin() + 1, "-v");
    const auto outcome = e2e::run(sandbox, {.argv = argv});
    CHECK(outcome.status.exit_code() == 0);
    CHECK(outcome.out == "none\n");
    CHECK((outcome.err.find("--pty has no effect: neither stdout nor stderr is a terminal\n") != std::string::npos) ==
          verbose);
    if (!verbose) CHECK(outcome.err == "");
}

TEST_CASE("lines of 16 workers are folded, and each worker's lines are found in them in order", "[e2e]") {
    const e2e::Sandbox sandbox("fold");
    constexpr int kWorkers = 16;
    constexpr int kLines = 2000;
    const std::string script =
        barrier(kWorkers) +
        fmt::format(
            "i=0; while [ $i -lt {} ]; do echo line $i; [ $i = $((RANK * 100)) ] && echo odd $RANK; i=$((i + 1)); done",
            kLines);
    const auto outcome = e2e::run(
        sandbox, {.argv = {program(), "--fold", "--nproc-per-node", std::to_string(kWorkers), "sh", "-c", script},
                  .directory = sandbox.path()});
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    std::map<int, std::string> seen;
    std::istringstream lines(outcome.out);
    const std::regex form(R"(\[ranks? ([0-9,-]+)\] (.*))");
    int folded = 0;
    for (std::string line; std::getline(lines, line);) {
        std::smatch parts;
        REQUIRE(std::regex_match(line, parts, form));
        std::istringstream ranges(parts[1]);
        for (std::string range; std::getline(ranges, range, ',');) {
            const int first = std::stoi(range);
            const auto dash = range.find('-');
            const int last = dash == std::string::npos ? first : std::stoi(range.substr(dash + 1));
            if (first < last) ++folded;
            for (int rank = first; rank <= last; ++rank) seen[rank] += parts[2].str() + "\n";
        }
    }
    CHECK(folded > kLines / 2);  // on a busy machine a worker may be too far behind to join
    for (int rank = 0; rank < kWorkers; ++rank) {
        std::string printed;
        for (int i = 0; i < kLines; ++i) {
            printed += fmt::format("line {}\n", i);
            if (i == rank * 100) printed += fmt::format("odd {}\n", rank);
        }
        CHECK(seen[rank] == printed);
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("folded lines have the label and the time that other options ask for", "[e2e]") {
    const e2e::Sandbox sandbox("fold-label");
    // Rank 0 prints for both: equal lines of two processes are folded only if they come within 0.3 s.
    const std::string script =
        "echo $$ >pid.$RANK.new; mv pid.$RANK.new pid.$RANK; "
        "if [ $RANK = 0 ]; then until [ -e pid.1 ]; do sleep 0.02; done; "
        "exec 3>/proc/$(cat pid.1)/fd/1; echo out >&3; echo out; exec 3>&-; : >printed; "
        "else until [ -e printed ]; do sleep 0.02; done; fi; echo err >&2";
    const auto outcome = e2e::run(
        sandbox, {.argv = {program(), "--nproc-per-node", "2", "--role", "train", "--fold", "--timestamps", "-t", "1:1",
                           "--log-line-prefix-template", "<${role_name} ${rank}> ", "sh", "-c", script},
                  .directory = sandbox.path()});
    CAPTURE(outcome.err);
    const std::regex form(R"((\d{4}-\d\d-\d\dT\S+ <train 0-1> out\n))");
    CHECK(std::regex_match(outcome.out, form));
}

TEST_CASE("the console shows the ranks and lines that filters choose, files have all", "[e2e]") {
    const e2e::Sandbox sandbox("console-filters");
    const auto outcome = e2e::run(sandbox, {.argv = {program(), "--nnodes", "2", "--local-nodes", "--nproc-per-node",
                                                     "2", "--rdzv-id", "j", "--log-dir", "logs", "--ranks-filter",
                                                     "0,2-3", "--grep", "loss|err", "--exclude", "2$", "sh", "-c",
                                                     "echo loss $RANK; echo other $RANK; [ $RANK != 3 ] || { until [ "
                                                     "$(cat logs/j/gen-1/rank-[02].out | grep -c other) = 2 ]; "
                                                     "do sleep 0.02; done; echo hidden >&2; exit 3; }; sleep 60"},
                                            .directory = sandbox.path()});
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 3);
    CHECK((outcome.out == "loss 0\nloss 3\n" || outcome.out == "loss 3\nloss 0\n"));
    CHECK_THAT(outcome.err, !Catch::Contains("\nhidden") && Catch::Contains("| hidden"));
    CHECK(e2e::read_file(sandbox.path() / "logs/j/gen-1/rank-2.out") == "loss 2\nother 2\n");
    CHECK(sandbox.leftovers() == "");
}
