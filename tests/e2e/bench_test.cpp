// ddp-bench as a user runs it.

#include <boost/json.hpp>

#include <algorithm>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"
#include "tests/machine_pauses.hpp"

namespace {

using Catch::Contains;
using namespace std::chrono_literals;

e2e::Command bench(std::vector<std::string> words) {
    std::vector<std::string> argv{
        (e2e::bin() / "ddprun").string(),   "--nnodes", "2", "--nproc-per-node", "2", "--local-nodes",
        (e2e::bin() / "ddp-bench").string()};
    argv.insert(argv.end(), words.begin(), words.end());
    return {.argv = std::move(argv)};
}

}  // namespace

TEST_CASE("ddp-bench measures every collective on two nodes and finds nothing wrong", "[e2e]") {
    const e2e::Sandbox sandbox("bench");
    const std::string file = (sandbox.path() / "figures.json").string();
    const MachinePauses pauses;
    const auto outcome =
        e2e::run(sandbox, bench({"-c", "all", "-b", "0", "-e", "256k", "-f", "64", "-n", "3", "--json", file}));
    INFO("this machine stood still for " << pauses.sum().count() << " ms");
    if (pauses.sum() < 1s) CHECK(outcome.err == "");  // else ddprun reports that its daemon was silent
    CHECK(outcome.status.exit_code() == 0);
    CHECK_THAT(outcome.out, Contains("# all_to_all: 4 ranks, native backend") && Contains("# wrong values: 0;"));
    const auto rows = boost::json::parse(e2e::read_file(file)).as_object().at("rows").as_array();
    CHECK(rows.size() == 13 * 4 + 1);  // 0, 64, 4096 and 262144 bytes; barrier has none
    for (const auto& row : rows) {
        const auto& fields = row.as_object();
        CHECK((!fields.at("out_of_place").is_null() || !fields.at("in_place").is_null()));
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("ddp-bench reports a wrong command line once", "[e2e]") {
    const e2e::Sandbox sandbox("bench-input");
    const auto unknown = e2e::run(sandbox, bench({"-c", "all_reduced"}));
    CHECK(unknown.status.exit_code() == 2);
    CHECK_THAT(unknown.err, Contains("there is no 'all_reduced'. The collectives are all, all_reduce, broadcast"));
    const auto root = e2e::run(sandbox, bench({"--root", "4"}));
    CHECK(root.status.exit_code() == 2);
    CHECK_THAT(root.err,
               Catch::StartsWith("ddp-bench: --root: there is no rank 4, only ranks 0 to 3\nTry ddp-bench --help.\n") &&
                   Contains("\n  rank        : 0 ") && !Contains("First failure"));
    const auto size = e2e::run(sandbox, bench({"--max-bytes", "abc"}));
    CHECK(size.status.exit_code() == 2);
    CHECK_THAT(size.err, Contains("--max-bytes: 'abc' is not a size. Pass a whole number, or one with k, m or g"));
    const auto json = e2e::run(sandbox, bench({"--json", "/nope/x"}));
    CHECK(json.status.exit_code() == 2);
    CHECK(json.out == "");  // nothing was measured
    CHECK_THAT(json.err, Contains("cannot write --json '/nope/x': No such file or directory. Pass a file"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("each wrong value of ddp-bench's options gets one message in the user's terms", "[e2e]") {
    const e2e::Sandbox sandbox("bench-values");
    const auto [words, says] = GENERATE(table<std::vector<std::string>, std::string>({
        {{"-r", "-1"}, "--root: '-1' is not a whole number from 0 to 999999"},
        {{"-f", "1"}, "--factor: '1' is not a number from 1.01 to 1000000000"},
        {{"-f", "nan"}, "--factor: 'nan' is not a number from 1.01 to 1000000000"},
        {{"-n", "0"}, "--iterations: '0' is not a whole number from 1 to 100000000"},
        {{"-n", "1.5"}, "--iterations: '1.5' is not a whole number from 1 to 100000000"},
        {{"-n", "99999999999999999999"},
         "--iterations: '99999999999999999999' is not a whole number from 1 to 100000000"},
        {{"-w", "x"}, "--warm-up: 'x' is not a whole number from 0 to 100000000"},
        {{"-b", ""}, "--min-bytes: '' is not a size. Pass a whole number, or one with k, m or g"},
        {{"-b", "99999999999999999999"},
         "--min-bytes: '99999999999999999999' is not a size. Pass a whole number, or one with k, m or g"},
        {{"-b", "99999999999g"},
         "--min-bytes: '99999999999g' is not a size. Pass a whole number, or one with k, m or g"},
        {{"-e", "1.5k"}, "--max-bytes: '1.5k' is not a size. Pass a whole number, or one with k, m or g"},
        {{"--json", ""}, "--json: pass the name of a file, or - for stdout"},
        {{"--check=maybe"}, "--check: takes no value"},
        {{"--no-check=yes"}, "--no-check: takes no value"},
        {{"-d", "float"}, "--type: float not in {i8,u8,i16,u16,i32,u32,i64,u64,f16,bf16,f32,f64}"},
        {{"surplus"}, "The following argument was not expected: surplus"},
    }));
    std::vector<std::string> argv{(e2e::bin() / "ddp-bench").string()};
    argv.insert(argv.end(), words.begin(), words.end());
    const auto outcome = e2e::run(sandbox, {.argv = argv});
    CHECK(outcome.status.exit_code() == 2);
    CHECK(outcome.out == "");
    CHECK(outcome.err == "ddp-bench: " + says + "\nTry ddp-bench --help.\n");
}

TEST_CASE("ddp-bench reports figures that it cannot write as lost", "[e2e]") {
    const e2e::Sandbox sandbox("bench-full");
    const std::string program = (e2e::bin() / "ddp-bench").string();
    for (const std::string options : {"--help", "-e 64", "-e 64 --json -"}) {
        const auto outcome = e2e::run(sandbox, {.argv = {"sh", "-c", program + " " + options + " >/dev/full"}});
        CAPTURE(options, outcome.err);
        CHECK(outcome.status.exit_code() == (options == "--help" ? 74 : 1));  // docs/exit-codes.md
        CHECK_THAT(outcome.err, Catch::StartsWith("ddp-bench: cannot write to stdout: No space left on device. "));
        CHECK(std::ranges::count(outcome.err, '\n') == 1);
    }
    const auto json = e2e::run(sandbox, {.argv = {program, "-e", "64", "--json", "/dev/full"}});
    CHECK(json.status.exit_code() == 1);
    CHECK_THAT(json.err, Contains("cannot write --json '/dev/full': No space left on device"));
}

TEST_CASE("ddp-bench writes what it has measured when its ranks disagree", "[e2e]") {
    const e2e::Sandbox sandbox("bench-error");
    const auto file = sandbox.path() / "figures.json";
    // Rank 1 asks for less, so the ranks do not agree on the third row.
    const std::string program = (e2e::bin() / "ddp-bench").string();
    const auto outcome =
        e2e::run(sandbox, {.argv = {(e2e::bin() / "ddprun").string(), "--nproc_per_node", "2", "sh", "-c",
                                    "exec " + program + " -e $((32 - 16 * RANK)) --json " + file.string()}});
    CHECK(outcome.status.exit_code() == 1);
    const auto json = boost::json::parse(e2e::read_file(file)).as_object();
    CHECK(json.at("rows").as_array().size() == 2);
    CHECK_THAT(std::string(json.at("error").as_string()), Contains("rank 1"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("an old file of figures is replaced, not added to", "[e2e]") {
    const e2e::Sandbox sandbox("bench-json");
    const auto file = sandbox.path() / "figures.json";
    e2e::write_file(file, "what was there before");
    const auto outcome =
        e2e::run(sandbox, {.argv = {(e2e::bin() / "ddp-bench").string(), "-e", "64", "--json", file.string()}});
    CHECK(outcome.status.exit_code() == 0);
    CHECK(boost::json::parse(e2e::read_file(file)).as_object().contains("rows"));
}
