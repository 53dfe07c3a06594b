// What a person reads on the console of a job and in its log: prompts, times of day.

#include <fmt/format.h>

#include <regex>
#include <string>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"
#include "tests/e2e/shell.hpp"

namespace {

std::string program() { return (e2e::bin() / "ddprun").string(); }

}  // namespace

TEST_CASE("a prompt is shown before its answer is typed", "[e2e]") {
    const e2e::Sandbox sandbox("prompt");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    e2e::Shell shell(sandbox);
    const std::string script = "printf \"na\"; printf \"me? \"; read name; echo \"Hello $name.\"";
    shell.type(fmt::format("{} {} sh -c '{}'\n", program(), emulated ? "--local-nodes" : "", script));
    REQUIRE(shell.shows("name? "));
    shell.type("Ada\n");
    CHECK(shell.shows("Hello Ada.\r\n"));
    CHECK(shell.shows("prompt> "));
}

TEST_CASE("a line of another worker does not continue a prompt", "[e2e]") {
    const e2e::Sandbox sandbox("prompt-of-two");
    e2e::Shell shell(sandbox);
    e2e::write_file(sandbox.path() / "train.sh",
                    "if [ $RANK = 0 ]; then printf '(Pdb) '; read line; echo \"got $line\"; touch $1/got\n"
                    "else until [ -e $1/shown ]; do sleep 0.02; done; echo other; fi\n");
    shell.type(fmt::format("{} --label --nproc-per-node 2 sh {}/train.sh {}\n", program(), sandbox.path().string(),
                           sandbox.path().string()));
    REQUIRE(shell.shows(":0] (Pdb) "));
    e2e::write_file(sandbox.path() / "shown", "");
    CHECK(shell.shows("\r\n["));
    CHECK(shell.shows(":1] other\r\n"));
    shell.type("p x\n");
    CHECK(shell.shows(":0] got p x\r\n"));
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
    shell.type(
        fmt::format("{} --timestamps --max-restarts 1 sh -c 'exit $((1 - TORCHELASTIC_RESTART_COUNT))'\n", program()));
    CHECK(shell.shows(":00 [ddprun] restart 1 of 1"));
}
