// Where the workers' output goes (--redirects, --tee, --log-dir), and the error file for the parent of ddprun.

#include <fmt/format.h>

#include <boost/json.hpp>
#include <set>
#include <sstream>
#include <string_view>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

using Catch::Contains;

namespace {

namespace fs = std::filesystem;

e2e::Outcome launch(const e2e::Sandbox& sandbox, std::vector<std::string> options, const std::string& script,
                    const std::map<std::string, std::string>& env = {}) {
    options.insert(options.begin(), (e2e::bin() / "ddprun").string());
    options.insert(options.end(), {"sh", "-c", script});
    return e2e::run(sandbox, {.argv = options, .env = env, .directory = sandbox.path()}, e2e::Seconds(60));
}

std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
}

std::vector<fs::path> entries(const fs::path& folder) {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
    return found;
}

constexpr const char* kTalk = "echo out $RANK; echo err $RANK >&2";

}  // namespace

TEST_CASE("streams are redirected by rank, to a temporary folder that a success removes", "[e2e]") {
    const e2e::Sandbox sandbox("redirects");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    std::vector<std::string> options{"--nproc-per-node", "2", "-r", "0:3,1:1"};
    if (emulated) options.insert(options.end(), {"--nnodes", "2", "--local-nodes"});
    const auto outcome = launch(sandbox, options, kTalk);
    CAPTURE(outcome.out, outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    CHECK(outcome.out.empty());
    CHECK(count_of(outcome.err, "redirected output is in " + (sandbox.path() / "tmp/ddprun-").string()) == 1);
    CHECK_THAT(outcome.err, Contains("the folder is removed if the job succeeds") && Contains("err 1\n"));
    CHECK_THAT(outcome.err, !Contains("err 0"));
    CHECK_FALSE(fs::exists(sandbox.path() / "ddprun-logs"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a failed job keeps its temporary files, one folder for all emulated nodes, and prints where", "[e2e]") {
    const e2e::Sandbox sandbox("kept");
    const bool emulated = GENERATE(false, true);
    CAPTURE(emulated);
    std::vector<std::string> options{"--rdzv-id", "j", "-r", "3"};
    if (emulated) options.insert(options.end(), {"--nnodes", "2", "--local-nodes"});
    const auto outcome =
        launch(sandbox, options, std::string(kTalk) + "; [ $RANK = 1 ] || [ $WORLD_SIZE = 1 ] && exit 3; sleep 60");
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 3);
    CHECK(outcome.out.empty());
    const auto folders = entries(sandbox.path() / "tmp");
    REQUIRE(folders.size() == 1);
    const std::string culprit = emulated ? "1" : "0";
    const fs::path gen = folders[0] / "j" / "gen-1";
    CHECK(e2e::read_file(gen / fmt::format("rank-{}.err", culprit)) == fmt::format("err {}\n", culprit));
    CHECK(e2e::read_file(gen / fmt::format("rank-{}.out", culprit)) == fmt::format("out {}\n", culprit));
    CHECK(fs::exists(gen / "rank-0.error.json") == false);
    CHECK_THAT(outcome.err, Contains(": " + (gen / fmt::format("rank-{}.err", culprit)).string() + "\n"));
    CHECK_THAT(outcome.err, Contains("    | err " + culprit));
    CHECK_THAT(outcome.err,
               Catch::EndsWith("the files with the output of the workers are in " + folders[0].string() + "\n"));
    fs::remove_all(folders[0]);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a job that starts no worker leaves no temporary folder", "[e2e]") {
    const e2e::Sandbox sandbox("refused");
    CHECK(launch(sandbox, {"-r", "3", "--nnodes", "1500", "--local-nodes"}, "true").status.exit_code() == 2);
    const std::string endpoint = fmt::format("127.0.0.1:{}", e2e::free_port());
    const auto outcome =
        launch(sandbox, {"-r", "3", "--rdzv-endpoint", endpoint, "--rdzv-conf", "is_host=0,read_timeout=0.2"}, "true");
    CHECK(outcome.status.exit_code() == 69);
    CHECK_THAT(outcome.err, !Contains("the files with the output"));
    CHECK(entries(sandbox.path() / "tmp").empty());
}

TEST_CASE("without a folder --tee labels lines as torchrun does, and makes no files", "[e2e]") {
    const e2e::Sandbox sandbox("tee");
    const auto outcome = launch(sandbox, {"--nproc-per-node", "2", "--role", "train", "-t", "1:1"}, kTalk);
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    CHECK((outcome.out == "out 0\n[train1]:out 1\n" || outcome.out == "[train1]:out 1\nout 0\n"));
    CHECK_THAT(outcome.err, Contains("err 0\n") && !Contains("[train"));
    CHECK(entries(sandbox.path() / "tmp").empty());
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("matching lines of all ranks are copied to one file", "[e2e]") {
    const e2e::Sandbox sandbox("filters");
    const auto outcome =
        launch(sandbox,
               {"--nnodes", "2", "--local-nodes", "--nproc-per-node", "2", "--rdzv-id", "j", "-t", "3", "--log-dir",
                "logs", "--duplicate-stdout-filters", "out 1,ut 2", "--local-ranks-filter", "1"},
               kTalk);
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    const std::string text = e2e::read_file(sandbox.path() / "logs/j/gen-1/filtered_stdout.log");
    CHECK((text == "[default1]:out 1\n[default0]:out 2\n" || text == "[default0]:out 2\n[default1]:out 1\n"));
    CHECK_THAT(outcome.out, Contains("[default1]:out 1\n") && !Contains("out 2"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("stdout that goes to a file only is the worker's own, over restarts and for its children", "[e2e]") {
    const e2e::Sandbox sandbox("own-file");
    const auto outcome = launch(
        sandbox, {"--log-dir", "logs", "--rdzv-id", "j", "-r", "3", "--max-restarts", "1"},
        "readlink /proc/self/fd/1; (echo child); echo err >&2; echo end; exit $((1 - TORCHELASTIC_RESTART_COUNT))");
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    for (const std::string_view generation : {"gen-1", "gen-2"}) {
        const fs::path path = fs::canonical(sandbox.path() / "logs/j" / generation / "rank-0.out");
        CHECK(e2e::read_file(path) == path.string() + "\nchild\nend\n");
        CHECK(e2e::read_file(path.parent_path() / "rank-0.err") == "err\n");
    }
}

TEST_CASE("log files are rotated by size, and no line is split or lost", "[e2e]") {
    const e2e::Sandbox sandbox("rotation");
    const bool timestamps = GENERATE(false, true);
    CAPTURE(timestamps);
    std::vector<std::string> options{"--log-dir", "logs",           "--rdzv-id", "j",          "-r",
                                     "3",         "--log-max-size", "64K",       "--log-keep", "100"};
    if (timestamps) options.emplace_back("--timestamps");
    const auto outcome = launch(sandbox, options, "seq 100000");
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    const fs::path path = sandbox.path() / "logs/j/gen-1/rank-0.out";
    std::string text;
    int files = 0;
    for (const fs::path& file : entries(path.parent_path())) {
        if (!file.filename().string().starts_with("rank-0.out")) continue;
        ++files;
        CHECK(fs::file_size(file) <= (64u << 10) + 40);  // the rest of a line
    }
    for (int number = files - 1; number >= 0; --number) {
        const std::string part = e2e::read_file(path.string() + (number == 0 ? "" : fmt::format(".{}", number)));
        CHECK(part.ends_with('\n'));
        text += part;
    }
    CHECK(files > 5);
    std::string printed;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        printed += (timestamps ? line.substr(line.find(' ') + 1) : line) + "\n";
    std::string expected;
    for (int i = 1; i <= 100'000; ++i) expected += fmt::format("{}\n", i);
    CHECK((printed == expected));  // too long to be shown
}

TEST_CASE("a rank that no node has is noted, and refuses no job", "[e2e]") {
    const e2e::Sandbox sandbox("absent-rank");
    const auto outcome = launch(sandbox, {"-t", "0:3,17:3"}, kTalk);
    CHECK(outcome.status.exit_code() == 0);
    CHECK_THAT(outcome.err, Contains("--tee: no local rank 17 among the 1 of this node\n"));
}

TEST_CASE("ranks in --ranks-filter that the job lacks are reported, and refuse no job", "[e2e]") {
    const e2e::Sandbox sandbox("absent-job-rank");
    const auto run = [&](const std::string& filter) {
        const auto outcome = launch(sandbox, {"--ranks-filter", filter}, kTalk);
        CHECK(outcome.status.exit_code() == 0);
        return outcome.err;
    };
    CHECK_THAT(run("1-3,7"), Contains("[ddprun] --ranks-filter: the job has no ranks 1-3,7 (world size 1), so that "
                                      "nothing its workers print is shown\n"));
    CHECK_THAT(run("0,7"), Contains("[ddprun] --ranks-filter: the job has no rank 7 (world size 1)\n"));
    CHECK_THAT(run("0"), !Contains("--ranks-filter"));
}

TEST_CASE("an unknown variable of --log-line-prefix-template stays in the lines, and is reported once", "[e2e]") {
    const e2e::Sandbox sandbox("unknown-variable");
    const std::vector<std::string> options{"--label",    "--nnodes", "2", "--local-nodes", "--log-line-prefix-template",
                                           "${rnk} $x: "};
    const auto outcome = launch(sandbox, options, "echo out");
    CHECK(outcome.status.exit_code() == 0);
    CHECK(outcome.out == "${rnk} $x: out\n${rnk} $x: out\n");
    CHECK(outcome.err ==
          "[ddprun] --log-line-prefix-template: ${rnk} and $x are not variables and stay as written. "
          "The variables are role_name, local_rank, rank and hostname\n");
}

TEST_CASE("a traceback that the console has shown is not shown again in the box", "[e2e]") {
    const e2e::Sandbox sandbox("once");
    const auto outcome = launch(sandbox, {}, "printf 'Value%s: x\\n' Error >&2; exit 1");
    CAPTURE(outcome.err);
    CHECK(count_of(outcome.err, "ValueError: x") == 1);
    CHECK_THAT(outcome.err, Contains("stderr      : printed above\n"));
}

TEST_CASE("the error file of ddprun has the culprit's error and exit code", "[e2e]") {
    const e2e::Sandbox sandbox("error-file");
    const std::string nodes = GENERATE(as<std::string>(), "1", "2");
    const bool on_disk = GENERATE(false, true);
    const auto path = sandbox.path() / "error.json";
    e2e::write_file(path, "of an earlier attempt");
    std::vector<std::string> options{"--nnodes", nodes, "--local-nodes"};
    if (on_disk) options.insert(options.end(), {"--log-dir", "logs", "-r", "3"});
    const auto outcome = launch(sandbox, options,
                                R"sh([ $RANK = $((WORLD_SIZE-1)) ] || exec sleep 60
echo '{"message":{"message":"E: x","extraInfo":{"timestamp":"1"}}}' >$TORCHELASTIC_ERROR_FILE; exit 3)sh",
                                {{"TORCHELASTIC_ERROR_FILE", path.string()}});
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 3);
    CHECK(e2e::read_file(path) == R"({"message":{"message":"E: x","extraInfo":{"timestamp":"1"},"errorCode":3}})");
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the error file of ddprun names the signal of a worker that crashed", "[e2e]") {
    const e2e::Sandbox sandbox("error-signal");
    const auto path = sandbox.path() / "error.json";
    const auto outcome =
        launch(sandbox, {}, "echo $$ >pid; kill -SEGV $$", {{"TORCHELASTIC_ERROR_FILE", path.string()}});
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 139);
    const auto message = boost::json::parse(e2e::read_file(path)).at("message");
    CHECK(message.at("errorCode") == -11);
    CHECK(message.at("message").as_string() ==
          fmt::format("Signal 11 (SIGSEGV) received by PID {}", std::stoi(e2e::read_file(sandbox.path() / "pid"))));
    CHECK(std::stol(message.at("extraInfo").at("timestamp").as_string().c_str()) > 1'700'000'000);
}

TEST_CASE("each ddprun of a job writes its own error file", "[e2e]") {
    const e2e::Sandbox sandbox("error-nodes");
    const std::string script =
        R"sh([ $RANK = 1 ] || exec sleep 60; echo '{"message": "E: x"}' >$TORCHELASTIC_ERROR_FILE; exit 3)sh";
    const auto command = [&](const std::string& error_file) {
        return e2e::Command{.argv = {(e2e::bin() / "ddprun").string(), "--nnodes", "2", "--rdzv-endpoint",
                                     "127.0.0.1:" + e2e::read_file(sandbox.path() / "port"), "sh", "-c", script},
                            .env = {{"TORCHELASTIC_ERROR_FILE", (sandbox.path() / error_file).string()}}};
    };
    e2e::write_file(sandbox.path() / "port", std::to_string(e2e::free_port()));
    e2e::Process one(sandbox, command("one.json"));
    e2e::Process other(sandbox, command("other.json"));
    CHECK(one.wait(e2e::Seconds(60)).exit_code() == 3);
    CHECK(other.wait(e2e::Seconds(60)).exit_code() == 3);
    CAPTURE(one.err(), other.err());
    std::multiset<std::string> texts;
    for (const char* name : {"one.json", "other.json"}) {
        const auto message = boost::json::parse(e2e::read_file(sandbox.path() / name)).at("message");
        if (message.is_string()) {
            texts.insert(message.as_string().c_str());
        } else {
            texts.insert(
                fmt::format("{} {}", message.at("message").as_string().c_str(), message.at("errorCode").as_int64()));
        }
    }
    CHECK(texts == std::multiset<std::string>{"E: x", "E: x 3"});
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a job that succeeds removes the error file of an earlier attempt and writes none", "[e2e]") {
    const e2e::Sandbox sandbox("stale");
    const auto path = sandbox.path() / "error.json";
    e2e::write_file(path, "old");
    const auto outcome = launch(sandbox, {"--max-restarts", "1"}, "[ ! -e $EF ] && [ $TORCHELASTIC_RESTART_COUNT = 1 ]",
                                {{"TORCHELASTIC_ERROR_FILE", path.string()}, {"EF", path.string()}});
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    CHECK_FALSE(fs::exists(path));
}

TEST_CASE("an error file that cannot be written is a warning and changes no exit code", "[e2e]") {
    const e2e::Sandbox sandbox("no-folder");
    const auto path = (sandbox.path() / "absent/error.json").string();
    const auto outcome = launch(sandbox, {}, "exit 3", {{"TORCHELASTIC_ERROR_FILE", path}});
    CHECK(outcome.status.exit_code() == 3);
    CHECK_THAT(outcome.err,
               Contains("cannot write the error file " + path + " (TORCHELASTIC_ERROR_FILE): No such file"));
}

TEST_CASE("a ddprun that is a worker passes its error on to the one above", "[e2e]") {
    const e2e::Sandbox sandbox("nested");
    const auto path = sandbox.path() / "error.json";
    const bool on_disk = GENERATE(false, true);
    std::vector<std::string> options;
    if (on_disk) options = {"--log-dir", "logs"};
    const auto outcome =
        launch(sandbox, options,
               fmt::format("exec {} sh -c 'echo \"{{\\\"message\\\": {{\\\"message\\\": \\\"E: x\\\"}}}}\" "
                           ">$TORCHELASTIC_ERROR_FILE; exit 3'",
                           (e2e::bin() / "ddprun").string()),
               {{"TORCHELASTIC_ERROR_FILE", path.string()}});
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 3);
    CHECK(e2e::read_file(path) == R"({"message":{"message":"E: x","errorCode":3}})");
    CHECK(sandbox.leftovers() == "");
}
