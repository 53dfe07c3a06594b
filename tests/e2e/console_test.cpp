// What a person sees on the console of a job: prompts.

#include <fmt/format.h>

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
