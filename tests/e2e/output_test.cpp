// Where the workers' output goes (--redirects, --tee, --log-dir).

#include <fmt/format.h>

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

TEST_CASE("a rank that no node has is noted, and refuses no job", "[e2e]") {
    const e2e::Sandbox sandbox("absent-rank");
    const auto outcome = launch(sandbox, {"-t", "0:3,17:3"}, kTalk);
    CHECK(outcome.status.exit_code() == 0);
    CHECK_THAT(outcome.err, Contains("--tee: no local rank 17 among the 1 of this node\n"));
}
