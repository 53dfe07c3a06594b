// Several programs in one job: their environment, their restarts, and how messages and reports name them.

#include <boost/json.hpp>

#include <set>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

namespace {

using Catch::Contains;
using Words = std::vector<std::string>;

std::set<std::string> lines_of(const std::string& text) {
    std::set<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.insert(line);
    return lines;
}

e2e::Outcome run(const e2e::Sandbox& sandbox, Words words) {
    words.insert(words.begin(), (e2e::bin() / "ddprun").string());
    return e2e::run(sandbox, {.argv = std::move(words), .directory = sandbox.path()}, e2e::Seconds(60));
}

constexpr const char* kShow =
    "echo $1 $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE "
    "$TORCHELASTIC_MAX_RESTARTS";

}  // namespace

TEST_CASE("two programs are one world, with ranks within their roles", "[e2e]") {
    const e2e::Sandbox sandbox("two-programs");
    const auto outcome = run(sandbox, {"--nnodes",
                                       "2",
                                       "--local-nodes",
                                       "--nproc-per-node",
                                       "2",
                                       "sh",
                                       "-c",
                                       kShow,
                                       "x",
                                       "train",
                                       ":",
                                       "--nproc-per-node=1",
                                       "--max-restarts",
                                       "3",
                                       "--role",
                                       "server",
                                       "sh",
                                       "-c",
                                       kShow,
                                       "x",
                                       "serve"});
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    CHECK(lines_of(outcome.out) == std::set<std::string>{"train 0/6 0/3 default 0/4 0", "train 1/6 1/3 default 1/4 0",
                                                         "serve 2/6 2/3 server 0/2 3", "train 3/6 0/3 default 2/4 0",
                                                         "train 4/6 1/3 default 3/4 0", "serve 5/6 2/3 server 1/2 3"});
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("each role has its own restarts: one restarts, another ends the job", "[e2e]") {
    const e2e::Sandbox sandbox("role-restarts");
    const char* const server = "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 3; touch up; exec sleep 1000";
    const char* const trainer = "while ! [ -e up ]; do sleep 0.05; done; exit 4";  // in the second group
    const auto outcome =
        run(sandbox, {"--report", "report.json", "--nproc-per-node", "2", "sh", "-c", trainer, ":", "--nproc-per-node",
                      "1", "--role", "server", "--max-restarts", "1", "sh", "-c", server});
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == 4);
    CHECK_THAT(outcome.err, Contains("restart 1 of 1 of role server: 3 workers on 1 node (rank 2 on ") &&
                                Contains("; no restart (--max-restarts 0 of role default)\n") &&
                                Contains("\n  role        : default\n") && Contains(" : sh -c '[ $TORCHELASTIC_REST"));
    const auto report = boost::json::parse(e2e::read_file(sandbox.path() / "report.json"));
    CHECK(report.at("culprit").at("role") == "default");
    CHECK(report.at("culprit").at("program") == "sh");
    CHECK(report.at("restarts") == 1);
    CHECK(report.at("max_restarts") == 1);
    CHECK(report.at("groups").at(1).at("restart_role") == "server");
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("nodes of one job may have different roles and programs", "[e2e]") {
    const e2e::Sandbox sandbox("roles-of-nodes");
    const std::string endpoint = "127.0.0.1:" + std::to_string(e2e::free_port());
    const auto node = [&](const char* rank, Words words) {
        words.insert(words.begin(), {(e2e::bin() / "ddprun").string(), "--nnodes", "3", "--rdzv-endpoint", endpoint,
                                     "--rdzv-id", "roles", "--node-rank", rank});
        return e2e::Command{.argv = std::move(words)};
    };
    e2e::Process server(sandbox, node("0", {"--role", "ps", "sh", "-c", kShow, "x", "serve"}));
    e2e::Process trainer(sandbox,
                         node("1", {"--role", "trainer", "--nproc-per-node", "2", "sh", "-c", kShow, "x", "train"}));
    e2e::Process both(sandbox, node("2", {"--role", "trainer", "sh", "-c", kShow, "x", "train", ":", "--nproc-per-node",
                                          "1", "--role", "ps", "sh", "-c", kShow, "x", "serve"}));
    for (e2e::Process* process : {&server, &trainer, &both}) CHECK(process->wait(e2e::Seconds(30)).exit_code() == 0);
    INFO(server.err() << trainer.err() << both.err());
    CHECK(server.out() == "serve 0/5 0/1 ps 0/2 0\n");
    CHECK(lines_of(trainer.out()) ==
          std::set<std::string>{"train 1/5 0/2 trainer 0/3 0", "train 2/5 1/2 trainer 1/3 0"});
    CHECK(lines_of(both.out()) == std::set<std::string>{"train 3/5 0/2 trainer 2/3 0", "serve 4/5 1/2 ps 1/2 0"});
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a wrong line of several programs is refused with one message", "[e2e]") {
    const e2e::Sandbox sandbox("wrong-programs");
    const auto wrong = run(sandbox, {"true", ":", "--nproc-per-node", "1", "--log-dir", "x", "true"});
    CHECK(wrong.status.exit_code() == 2);
    CHECK_THAT(wrong.err, Catch::StartsWith("ddprun: program 2: --log-dir: is for the whole job, so it goes before"));
    const auto many = run(sandbox, {"--nproc-per-node", "4096", "true", ":", "--nproc-per-node", "1", "true"});
    CHECK(many.status.exit_code() == 2);
    CHECK(
        many.err ==
        "ddprun: --nproc-per-node 4096 and 1: 4097 workers in all, but a node has at most 4096. Run the others on more "
        "nodes (--nnodes).\n");
    CHECK(sandbox.leftovers() == "");
}
